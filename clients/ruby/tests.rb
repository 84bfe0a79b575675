# frozen_string_literal: true

# tests.rb: tests that only Ruby needs, on the server of REDIS_URL.

require "fileutils"
require "tmpdir"

require_relative "semaphore"

def expect(met, what)
  abort "FAILED: #{what}" unless met
end

def eventually(what)
  give_up = RedisSemaphore.now + 60_000
  until yield
    expect(RedisSemaphore.now < give_up, "not within a minute: #{what}")
    sleep 0.005
  end
end

name = "test-#{SecureRandom.hex(16)}"
semaphore = RedisSemaphore.new(name, limit: 1)
# This raises Lost if the child releases the permit.
semaphore.with_permit do
  exit if fork.nil?
  Process.wait
end
semaphore.with_permit do |permit|
  exit!(semaphore.release(permit)) if fork.nil?
  expect(!Process.wait2.last.success?, "a child released its parent's permit")
end

# A release succeeds, but its reply is lost.
permit = semaphore.acquire
scripts = semaphore.instance_variable_get(:@scripts)
scripts.define_singleton_method(:call) { |*arguments| raise Redis::BaseError, "no reply" if super(*arguments) }
begin
  semaphore.release(permit)
  abort "FAILED: a release without a reply raises nothing"
rescue Redis::BaseError
  scripts.singleton_class.remove_method(:call)
end
expect(semaphore.release(permit), "a repeated release reports a loss")
expect(permit.expires_in.zero?, "a released permit still expires")
expect(!semaphore.release(permit), "a released permit is still held")

# The permit is lost, and the server closes the idle connection.
permit = semaphore.acquire
connection = scripts.instance_variable_get(:@redis)
other = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1"))
other.call("CLIENT", "KILL", "ID", connection.call("CLIENT", "ID"))
other.del("sem:{#{name}}:permits")
scripts.instance_variable_set(:@replied_at, 0)
expect(!semaphore.release(permit), "a lost permit counts as released because the connection was closed")

# A failure of wake does not change a successful reply, and does not delay it for long.
[Redis::CommandError.new("NOPERM no"), Redis::CannotConnectError.new("no")].each do |failure|
  scripts.define_singleton_method(:call) do |script, *arguments|
    raise failure if script == "wake"

    super(script, *arguments).tap { |reply| reply[1] = 0 } # The server has more work.
  end
  since = RedisSemaphore.now
  permit = semaphore.acquire(timeout: 300)
  begin
    semaphore.acquire(timeout: 300)
    abort "FAILED: a second permit was granted"
  rescue RedisSemaphore::Timeout, Redis::CommandError
    # A request cannot wait without wake.
  end
  expect(semaphore.release(permit), "a failure of wake makes a release fail")
  expect(RedisSemaphore.now - since < 10_000, "a failure of wake delays an acquire")
  scripts.singleton_class.remove_method(:call)
end

permit = semaphore.acquire
begin
  RedisSemaphore.new("#{name}-2", limit: 1).release(permit)
  abort "FAILED: another semaphore's permit is released"
rescue ArgumentError => e
  expect(e.message.include?(name), e.message)
end
expect(RedisSemaphore.new(name, limit: 1).release(permit), "a second object of the semaphore cannot release its permit")

permit = semaphore.acquire.freeze
held = { permit => true }
expect(semaphore.release(permit) && held[permit], "a frozen permit is not released, or is another one afterwards")

# A thread that starts during a release waits for a permit.
permit = semaphore.acquire
waiter = nil
semaphore.send(:undisturbed) do
  waiter = Thread.new { RedisSemaphore.new(name, limit: 1).with_permit { true } }
end
waits = -> { other.zcard("sem:{#{name}}:queue") == 1 }
eventually("it waits", &waits)
expect(semaphore.release(permit), "a permit is lost")
expect(waiter.join(60)&.value, "a thread that started during a release gets no permit")

# The main thread ends while another thread holds a permit.
if fork.nil?
  held = Queue.new
  Thread.new { RedisSemaphore.new(name, limit: 1).with_permit { sleep if held << true } }
  held.pop
  exit
end
Process.wait
permit = semaphore.try_acquire
expect(permit, "a permit is not released when the main thread ends")

# The permit is lost while the block runs, and the block ends with break.
begin
  RedisSemaphore.new("#{name}-lost", limit: 1, lease: 500).with_permit do |held|
    sleep 0.01 until held.expires_in.zero?
    break
  end
  abort "FAILED: a block that ends with break hides the loss of the permit"
rescue RedisSemaphore::Lost
  # This error is expected.
end

# A thread is killed while it waits.
redis = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1"))
waits = -> { redis.zcard("sem:{#{name}}:queue") == 1 }
%i[acquire with_permit].each do |method|
  thread = Thread.new { RedisSemaphore.new(name, limit: 1).public_send(method) { nil } }
  eventually("it waits", &waits)
  thread.kill.join
  expect(!waits.call, "the request of a thread that was killed in #{method} is still queued")
end
semaphore.release(permit)

# A thread is killed while it waits for a silent server.
silent = TCPServer.new("127.0.0.1", 0)
threads = Thread.list.size
thread = Thread.new { RedisSemaphore::Listener.new("redis://127.0.0.1:#{silent.addr[1]}", "channel").start }
connection = silent.accept
thread.kill.join
expect(Thread.list.size == threads, "a failed listener has left its thread")
eventually("its connection is closed") { connection.read_nonblock(100, exception: false).nil? }

# A signal arrives after the block of with_permit, at each point at which the main thread may notice it.
left = 0
signals = (1..).take_while do |point|
  trace = TracePoint.new(:line, :call, :return, :c_call, :c_return, :b_call, :b_return) do
    next unless Thread.current == Thread.main && left.positive?

    left -= 1
    raise Interrupt if left.zero?
  end
  begin
    trace.enable { semaphore.with_permit { left = point } }
    false # The signal was too late.
  rescue Interrupt
    (Thread.list - [Thread.main]).each(&:join) # The release may continue in the background.
    permit = semaphore.try_acquire
    expect(permit, "a signal at point #{point} prevents the release")
    semaphore.release(permit)
  end
end
expect(signals.size > 20, "only #{signals.size} signals came")

# A signal arrives during a wait, at each point of this client at which the main thread may notice it.
permit = semaphore.acquire
channels = -> { redis.pubsub(:channels, "sem:wake:*.#{Process.pid}.*") }
signals = (1..).take_while do |point|
  left = point
  trace = TracePoint.new(:line, :call, :return, :c_call, :c_return, :b_call, :b_return) do |event|
    next unless Thread.current == Thread.main && left.positive? && event.path.end_with?("/semaphore.rb")
    next if event.method_id == :backtrace # Ruby itself calls it, and no signal arrives there.

    left -= 1
    raise Interrupt if left.zero?
  end
  begin
    trace.enable { semaphore.acquire(timeout: 0) }
  rescue Interrupt
    eventually("a signal at point #{point} leaves no thread") { Thread.list.size == 1 }
    eventually("a signal at point #{point} leaves no subscription") { channels.call.empty? }
    true
  rescue RedisSemaphore::Timeout
    false # The signal was too late.
  end
end
expect(signals.size > 100, "only #{signals.size} signals came")

# A signal and a timeout arrive during a release.
traps = Queue.new
trap(:USR1) { raise Interrupt, "USR1" if traps << true }
%i[signal timeout].each do |first|
  Timeout.timeout(0.01) do
    semaphore.send(:undisturbed) do
      late = -> { eventually("the timeout") { Thread.main.pending_interrupt? } }
      late.call if first == :timeout
      Process.kill(:USR1, Process.pid)
      traps.pop
      late.call
    end
  end
  abort "FAILED: a signal during a release has no effect"
rescue Timeout::Error
  abort "FAILED: a timeout replaces the signal that arrives during the same release, #{first} first"
rescue Interrupt
  expect(!Thread.pending_interrupt?, "the timeout comes after its block has ended")
end
trap(:USR1, "DEFAULT")

# If an exception interrupts `require`, RubyGems keeps its lock, and other threads hang. Traps interrupt the main thread.
required = []
trace = TracePoint.new(:call) do |event|
  required << caller(2, 1) if event.method_id == :require && Thread.current == Thread.main
end
begin
  trace.enable { semaphore.acquire(timeout: 0) }
  abort "FAILED: a second permit was granted"
rescue RedisSemaphore::Timeout
  expect(required.empty?, "the main thread requires files during a wait: #{required}")
end
semaphore.release(permit)

[nil, "id"].each do |wrong|
  semaphore.release(wrong)
  abort "FAILED: #{wrong.inspect} is released"
rescue ArgumentError => e
  expect(e.message.end_with?("not #{wrong.inspect}"), e.message)
end

[nil, :jobs, "a{b", "\xff", ""].each do |wrong|
  RedisSemaphore.new(wrong, limit: 1)
  abort "FAILED: the name #{wrong.inspect} is not rejected"
rescue ArgumentError => e
  expect(e.message.end_with?("not #{wrong.inspect}"), e.message)
end

{
  "" => "begin with redis://", "secret" => "begin with redis://", "http://:secret@h" => "begin with redis://",
  "REDIS://:secret@h" => "begin with redis://", "redis:/:secret@h" => "begin with redis://",
  "redis:u:secret@h" => "begin with redis://", nil => "string", :secret => "string",
  "redis://:sec ret@h" => "white space", "redis://:secret@h\n" => "white space", "redis://:secretä@h" => "ASCII",
  "redis://:secret\xff@h" => "ASCII",
  "redis://:sec/ret@h" => "%2F", "redis://:sec?ret@h" => "%3F", "redis://:sec#ret@h" => "%23",
  "redis://:sec@ret@h" => "%40", "redis://:sec%ret@h" => "%25",
  "redis://secret@h" => "without a password", "redis://secret:@h" => "without a password",
  "redis://:secret@::1" => "host", "redis://:secret@[::1" => "host", "redis://:secret@[1:2]" => "host",
  "redis://:secret@a:1,b:2" => "host", "redis://:secret@a,b" => "host",
  "redis://:secret" => "port", "redis://:secret@h:x" => "port", "redis://:secret@h:0" => "port",
  "redis://:secret@h:65536" => "port", "redis://:secret@h:+1" => "port",
  "redis://u:secret@h/abc" => "database", "redis://u:secret@h//1" => "database", "redis://h/-1" => "database",
  "redis://h?db=5" => "?", "redis://h/1?password=secret" => "?", "redis://h?" => "?", "redis://h/#secret" => "#",
  "unix://:secret@/path" => "socket", "unix:///path?password=secret" => "socket", "unix://secret/path" => "socket",
  "unix:///a%20b" => "socket", "unix:///a{b" => "socket"
}.each do |url, found|
  RedisSemaphore.new(name, limit: 1, url: url)
  abort "FAILED: the URL #{url.inspect} is not rejected"
rescue ArgumentError => e
  expect(e.message[%r{\Athe URL (.*)\. It must be redis://}, 1].to_s.include?(found), "#{url.inspect}: #{e.message}")
  expect(!e.full_message.match?(/secret|sec.ret/), "#{url.inspect}: #{e.full_message}")
end
{
  "redis://h" => ["h", 6379, nil, nil, 0, nil], "rediss://u:a+b%20%C3@h:65535/" => ["h", 65_535, "u", "a+b \xc3", 0, nil],
  "redis://:p:q@[::1]:1/15" => ["::1", 1, nil, "p:q", 15, nil], "redis://:@h:/" => ["h", 6379, nil, nil, 0, nil],
  "redis:///3" => ["127.0.0.1", 6379, nil, nil, 3, nil], "unix:///run/a+b.sock" => [nil, nil, nil, nil, 0, "/run/a+b.sock"]
}.each do |url, parts|
  read = RedisSemaphore.new(name, limit: 1, url: url).instance_variable_get(:@redis)._client.options
  expect(read.values_at(:host, :port, :username, :password, :db, :path) == parts, "#{url} is misread")
end

# A server that does not know AUTH quotes the arguments of AUTH in its error.
port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }
folder = Dir.mktmpdir
at_exit { FileUtils.rm_rf(folder) }
server = Process.spawn(ENV.fetch("REDIS_SERVER_BIN", "redis-server"), "--port", port.to_s, "--save", "",
                       "--unixsocket", "#{folder}/socket", "--rename-command", "AUTH", "", out: File::NULL)
at_exit { Process.kill(:KILL, server) }
eventually("the server accepts connections") do
  TCPSocket.new("127.0.0.1", port).close || true
rescue Errno::ECONNREFUSED
  false
end
# A request waits for a permit over a Unix socket.
at_socket = RedisSemaphore.new(name, limit: 1, url: "unix://#{folder}/socket")
held = at_socket.acquire
waiter = Thread.new { RedisSemaphore.new(name, limit: 1, url: "unix://#{folder}/socket").with_permit { :granted } }
queue = Redis.new(path: "#{folder}/socket")
eventually("a request waits at a Unix socket") { queue.zcard("sem:{#{name}}:queue") == 1 }
expect(at_socket.release(held) && waiter.value == :granted, "a request at a Unix socket is not granted")

%w[bob:s3cret :s3cret bob:s3cret%FF].each do |credentials|
  url = "redis://#{credentials}@127.0.0.1:#{port}"
  waiting = RedisSemaphore.new(name, limit: 1, url: url)
  expect(waiting.inspect == "#<RedisSemaphore #{name}>", waiting.inspect)
  calls = [-> { waiting.acquire }, -> { waiting.with_permit { nil } },
           -> { waiting.send(:again, 0, nil) { RedisSemaphore::Listener.new(url, "channel").start } }]
  calls.each do |call|
    call.call
    abort "FAILED: a server without AUTH is not rejected"
  rescue Redis::CommandError => e
    expect(e.message.match?(/unknown command .auth.\z/i), e.message)
    expect(!e.full_message(highlight: false).include?("s3cret"), e.full_message)
    expect(e.cause.nil? || e.cause.equal?(e), "its cause is #{e.cause.inspect}")
  end
end

# The server requires a password.
protected = Redis.new(port: port)
protected.config(:set, "requirepass", "secret")
begin
  RedisSemaphore.new(name, limit: 1, url: "redis://127.0.0.1:#{port}").acquire
  abort "FAILED: a server that requires a password is not rejected"
rescue Redis::CommandError => e
  expect(e.message.scan("requires a password").size == 1, e.message)
end

# Groups: a cap, wrong groups, and grant messages.
name = "test-#{SecureRandom.hex(16)}"
plain, capped, larger, other =
  [nil, "a,1,1", "a,2,2", "b"].map { |group| RedisSemaphore.new(name, limit: 3, group: group) }
permit = plain.acquire
held = capped.acquire
expect(held.id.include?(":a,1,1:"), held.id)
expect(capped.try_acquire.nil?, "a cap has no effect")
second = other.try_acquire
expect(second.id.include?(":b,1,0:") && plain.release(permit), "#{second.id} or a permit without a group is lost")
third = larger.try_acquire
expect(third && larger.release(third), "a larger cap has no effect")
thread = Thread.new { RedisSemaphore.new(name, limit: 3, group: "a,1,1").with_permit { true } }
eventually("a request at the cap of its group waits") { redis.zcard("sem:{#{name}}:queue") == 1 }
expect(capped.release(held) && other.release(second), "a permit of a group is lost")
expect(thread.value, "a request at the cap of its group is not granted")
expect(capped.send(:grant, +"#{name}\n#{held.id} 7 8", held.id) == [7, 8], "a message with a group is ignored")
["", "a:b", "a\n", "x" * 65, "a,1", "a,0,0", "a,1001,0", "a,01,0", "a,1,4294967296", "a,1,0:b"].each do |group|
  RedisSemaphore.new(name, limit: 1, group: group)
  abort "FAILED: the group #{group.inspect} is not rejected"
rescue ArgumentError => e
  expect(e.message.start_with?("a group must be NAME or NAME,SHARE,CAP"), e.message)
end

# A server that ends each TLS handshake is unavailable: it closes the connection, replies in HTTP, or sends an alert.
answers = ["", "HTTP/1.1 503 Service Unavailable\r\n\r\n", "\x15\x03\x03\x00\x02\x02\x28".b]
answers.each do |answer|
  peer = TCPServer.new("127.0.0.1", 0)
  tries = 0
  Thread.new do
    loop do
      socket = peer.accept
      tries += 1
      socket.write(answer)
      socket.close
    rescue SystemCallError
      socket.close
    end
  end
  url = "rediss://127.0.0.1:#{peer.addr[1]}"
  begin
    RedisSemaphore.new(name, limit: 1, url: url).acquire(timeout: 1500)
    abort "FAILED: a peer without TLS grants a permit"
  rescue RedisSemaphore::Timeout
    expect(tries > 2, "#{tries} attempts to connect")
  end
  begin
    RedisSemaphore::Listener.new(url, "channel").start
    abort "FAILED: a peer without TLS accepts a subscription"
  rescue Redis::CannotConnectError
    peer.close
  end
end
puts "tests.rb: passed"
