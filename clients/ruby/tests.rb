# frozen_string_literal: true

# tests.rb: what is particular to Ruby, on the server of REDIS_URL.

require_relative "semaphore"

def expect(met, what)
  abort "FAILED: #{what}" unless met
end

def eventually(what)
  give_up = RedisSemaphore.now + 60_000
  until yield
    expect(RedisSemaphore.now < give_up, "not in a minute: #{what}")
    sleep 0.005
  end
end

name = "test-#{SecureRandom.hex(16)}"
semaphore = RedisSemaphore.new(name, limit: 1)
# It raises Lost if the child gave the permit back.
semaphore.hold do
  exit if fork.nil?
  Process.wait
end
semaphore.hold do |permit|
  exit!(semaphore.release(permit)) if fork.nil?
  expect(!Process.wait2.last.success?, "a child gave back what its parent holds")
end

# A release is done, but not answered.
permit = semaphore.acquire
scripts = semaphore.instance_variable_get(:@scripts)
scripts.define_singleton_method(:call) { |*arguments| raise Redis::CommandError, "ERR no answer" if super(*arguments) }
begin
  semaphore.release(permit)
  abort "FAILED: a release without an answer raises nothing"
rescue Redis::CommandError
  scripts.singleton_class.remove_method(:call)
end
expect(semaphore.release(permit), "a release that is repeated tells that the permit was lost")
expect(!semaphore.release(permit), "a permit that was given back is held")

# A wake fails. That changes nothing of an answer that is good, and does not take long.
[Redis::CommandError.new("NOPERM no"), Redis::CannotConnectError.new("no")].each do |failure|
  scripts.define_singleton_method(:call) do |script, *arguments|
    raise failure if script == "wake"

    super(script, *arguments).tap { |reply| reply[1] = 0 } # There is more to do.
  end
  since = RedisSemaphore.now
  permit = semaphore.acquire(timeout: 300)
  begin
    semaphore.acquire(timeout: 300)
    abort "FAILED: a second permit was granted"
  rescue RedisSemaphore::Timeout, Redis::CommandError
    # It could not wait.
  end
  expect(semaphore.release(permit), "a wake that failed makes a release fail")
  expect(RedisSemaphore.now - since < 10_000, "a wake that fails keeps an acquire beyond its time")
  scripts.singleton_class.remove_method(:call)
end

permit = semaphore.acquire
begin
  RedisSemaphore.new("#{name}-2", limit: 1).release(permit)
  abort "FAILED: a permit of another semaphore is released"
rescue ArgumentError => e
  expect(e.message.include?(name), e.message)
end
expect(RedisSemaphore.new(name, limit: 1).release(permit), "a second object cannot release a permit of its semaphore")

# The main thread ends while another one holds.
if fork.nil?
  held = Queue.new
  Thread.new { RedisSemaphore.new(name, limit: 1).hold { sleep if held << true } }
  held.pop
  exit
end
Process.wait
permit = semaphore.try
expect(permit, "a thread that holds does not give back when the main thread ends")

# A thread is killed while it waits.
redis = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1"))
waits = -> { redis.zcard("sem:{#{name}}:queue") == 1 }
%i[acquire hold].each do |method|
  thread = Thread.new { RedisSemaphore.new(name, limit: 1).public_send(method) { nil } }
  eventually("it waits", &waits)
  thread.kill.join
  expect(!waits.call, "a thread that was killed in #{method} is still in the queue")
end
semaphore.release(permit)

# It is interrupted while it waits for a server that says nothing.
silent = TCPServer.new("127.0.0.1", 0)
threads = Thread.list.size
thread = Thread.new { RedisSemaphore::Listener.new("redis://127.0.0.1:#{silent.addr[1]}", "channel") }
connection = silent.accept
thread.kill.join
expect(Thread.list.size == threads, "a listener that could not be made has left its thread")
eventually("its connection is closed") { connection.read_nonblock(100, exception: false).nil? }

# A signal comes after the block of hold: at each point at which the main thread may notice it.
left = 0
signals = (1..).take_while do |point|
  trace = TracePoint.new(:line, :call, :return, :c_call, :c_return, :b_call, :b_return) do
    next unless Thread.current == Thread.main && left.positive?

    left -= 1
    raise Interrupt if left.zero?
  end
  begin
    trace.enable { semaphore.hold { left = point } }
    false # It came too late.
  rescue Interrupt
    (Thread.list - [Thread.main]).each(&:join) # It may go on in the background.
    permit = semaphore.try
    expect(permit, "a signal at point #{point} keeps hold from giving back")
    semaphore.release(permit)
  end
end
expect(signals.size > 20, "only #{signals.size} signals came")

[nil, :jobs, "a{b", "\xff", ""].each do |wrong|
  RedisSemaphore.new(wrong, limit: 1)
  abort "FAILED: the name #{wrong.inspect} is not refused"
rescue ArgumentError => e
  expect(e.message.end_with?("not #{wrong.inspect}"), e.message)
end
puts "tests.rb: passed"
