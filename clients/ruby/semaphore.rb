# frozen_string_literal: true

# A thin client of redis-semaphore. README.md describes its use.

require "cgi"
require "forwardable"
require "json"
require "openssl"
require "redis"
require "securerandom"
require "socket"
require "uri"

class RedisSemaphore
  # No permit was granted in time.
  class Timeout < StandardError; end
  # The permit was lost before the block of with_permit ended.
  class Lost < StandardError; end

  HEARTBEAT_TIMEOUT = 15_000 # ms: the server skips requests of a client that is silent for longer
  ASK_EVERY = HEARTBEAT_TIMEOUT / 3
  PATIENCE = 30_000 # ms: how long a call is retried while Redis is unavailable
  GIVE_BACK = 2_000 # ms: how long the release of a request without a permit is retried
  RESPONSE_SECONDS = 2
  IDLE = 100 # ms: after this time without a reply, the connection is checked before a release
  MAX_WEIGHT = 4_294_967_295 # also the largest limit
  MAX_LEASE = 604_800_000
  LEAST = { "acquire" => 5, "release" => 3, "wake" => 2 }.freeze # the numbers in a reply, at least
  GROUP = /[A-Za-z0-9._-]{1,64},(?:[1-9][0-9]{0,2}|1000),(0|[1-9][0-9]{0,9}):/
  ID = /\A[PSN]:[A-Za-z0-9._-]{1,100}:([1-9][0-9]{0,9}):([1-9][0-9]{0,8}):#{GROUP}?[A-Za-z0-9_-]{16,64}\z/
  PASSING = "LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|READONLY|ERR max number of clients"
  NO_PASSWORD = ": the server requires a password, as in redis://:PASSWORD@HOST"
  # This matches any text. The password may contain all characters, so the last @ is its end.
  URL = %r{\A(?:(\w*)://)?(?:(.*)@)?([^/?#]*?)(?::([^:/?#\]]*))?(/[^?#]*)?([?#].*)?\z}m
  # Redis 6.2 adds a prefix to the errors of commands in scripts.
  MAY_PASS = /\A(ERR Error running script .*: -)?(#{PASSING}) /

  # Returns the time of the monotonic clock in ms.
  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)

  # A permit. It equals only itself, so a Set or Hash finds it after its release, too.
  class Permit
    extend Forwardable

    # This changes even if the program freezes the permit. `ends` is until when the permit is certainly held: a confirmed
    # release sets it to 0. `release_sent`: an earlier release got no reply, so the server may have released the permit.
    State = Struct.new(:ends, :release_sent)

    attr_reader :id, :fencing_token, :name

    def_delegators :@state, :ends, :ends=, :release_sent, :release_sent=

    def initialize(id, fencing_token, ends, name)
      @id = id
      @fencing_token = fencing_token
      @name = name
      @pid = Process.pid
      @state = State.new(ends, false)
    end

    # Returns false in a forked child, which has only a copy of its parent's permit.
    def own? = @pid == Process.pid

    # Returns for how many ms the permit is certainly held. 0: it may be lost.
    def expires_in = [ends - RedisSemaphore.now, 0].max
  end

  Answer = Struct.new(:reply, :sent)

  def initialize(name, limit:, lease: 30_000, url: ENV.fetch("REDIS_URL", "redis://127.0.0.1"), group: nil)
    @name = check_name(name)
    @limit = check("a limit", limit, 0..MAX_WEIGHT)
    @lease = check("a lease", lease, 1..MAX_LEASE)
    @group = check_group(group)
    @url = check_url(url)
    @redis = Redis.new(url: @url, timeout: RESPONSE_SECONDS, reconnect_attempts: 0)
    @scripts = Scripts.new(@redis)
    @named = 4 # how many keys a call names
    @keys = %w[permits queue clients state order turns].map { |key| "sem:{#{@name}}:#{key}" }
  end

  # Errors of Ruby, such as NoMethodError, show this text. It does not contain the URL.
  def inspect = "#<RedisSemaphore #{@name}>"

  # Returns a permit, or nil if none is free or other requests wait.
  def try_acquire
    give_back_on_error(new_id) { |id| ask(id, "try", nil) }
  end

  # Waits for a permit. Raises Timeout if none is granted within this many ms.
  def acquire(timeout: nil)
    wait_until = wait_until(timeout)
    give_back_on_error(new_id) { |id| acquire_as(id, wait_until) }
  end

  # Releases a permit. Returns whether this process held it until now: false if it was lost or released before.
  def release(permit)
    raise ArgumentError, "a Permit is released, not #{permit.inspect}" unless permit.is_a?(Permit)
    raise ArgumentError, "the permit belongs to the semaphore #{permit.name}, not to #{@name}" unless permit.name == @name
    return false unless permit.own?

    undisturbed do
      # On a closed connection, the first attempt fails. A lost permit then looks like a released one.
      @scripts.check
      give_back(permit, [permit.expires_in, PATIENCE].min)
    end
  end

  # Yields while a permit is held. Raises Lost afterwards if the permit was lost, or released by the block, unless the
  # block raises an exception.
  def with_permit(timeout: nil)
    wait_until = wait_until(timeout)
    id = new_id
    permit = begun = has_failed = nil
    finish = lambda do
      begun = true
      permit ? release(permit) : give_up(id)
    end
    begin
      permit = acquire_as(id, wait_until)
      yield permit
    rescue Exception
      has_failed = true
      raise
    ensure
      begin
        held = undisturbed(&finish)
      ensure # A signal may have arrived just before the release began.
        undisturbed(&finish) unless begun
      end
      # The block may also have ended with break, return or throw.
      is_lost = permit && !held && !has_failed
      raise Lost, "semaphore #{@name}: the permit #{id} was lost or released before" if is_lost
    end
  end

  def close = @redis.close

  private

  def check(what, number, range)
    return number if number.is_a?(Integer) && range.cover?(number)

    raise ArgumentError, "#{what} must be a whole number from #{range.min} to #{range.max}, not #{number.inspect}"
  end

  def check_name(given)
    if given.is_a?(String)
      name = given.dup.force_encoding(Encoding::UTF_8) # The string may have any encoding.
      return name.freeze if name.bytesize.between?(1, 512) && name.valid_encoding? && !name.match?(/[{}\x00-\x1f\x7f]/)
    end
    raise ArgumentError, "a name must be a string of 1 to 512 bytes of UTF-8, without braces and control characters, " \
                         "not #{given.inspect[0, 600]}"
  end

  # Returns the part of the IDs for the group.
  def check_group(group)
    return "" unless group

    part = group.to_s.include?(",") ? "#{group}:" : "#{group},1,0:"
    return part if id?("P:c:1:1:#{part}#{'n' * 16}")

    raise ArgumentError, "a group must be NAME or NAME,SHARE,CAP, with a name of 1 to 64 letters, digits, \".\", \"_\" " \
                         "or \"-\", a share from 1 to 1000, and a cap from 1 to #{MAX_WEIGHT} or 0 for none, " \
                         "not #{group.inspect[0, 100]}"
  end

  # Returns the URL for the library, which would ignore wrong parts. Its own errors contain the password.
  def check_url(url)
    wrong = fault_of_url(url)
    if wrong
      raise ArgumentError, "the URL #{wrong}. It must be redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], " \
                           "rediss://... for TLS, or unix:///PATH for a socket without a password"
    end
    return url if url.start_with?("unix:")

    url = url.gsub("+", "%2B") # The library reads + as a space.
    secret = CGI.unescape(URI.parse(url).password || "").b
    if secret.size >= 4 # A shorter password is part of many words, such as the codes of errors.
      bytes = secret.each_byte.map { |byte| format("(?:\\x%<byte>02x|%%%<byte>02x)", byte: byte) }
      @secret = Regexp.new(bytes.join, Regexp::IGNORECASE | Regexp::NOENCODING)
    end
    url
  end

  # Returns what is wrong with a URL, or nil. The text does not contain any part, because each may be a piece of a
  # password.
  def fault_of_url(url)
    return "is not a string" unless url.is_a?(String)
    if url.b.match?(/[^!-~]/n)
      return "contains white space or other characters than ASCII (in a password, write them as %XX, and a space as %20)"
    end

    scheme, login, host, port, path, rest = URL.match(url).captures.map(&:to_s)
    user, password = login.split(":", 2)
    if !%w[redis rediss unix].include?(scheme) then "does not begin with redis://, rediss:// or unix://"
    elsif scheme == "unix" && !url.match?(%r{\Aunix:///[!$&-/:;=\w~]+\z})
      "is not the path of a socket without a user, a password, options and special characters"
    elsif !login.match?(/\A(%\h\h|[!$&-.:;=\w~])*\z/)
      "has a user name or password that cannot be read: write special characters of a user name or password as %XX, " \
        "such as / ? # @ : % as %2F %3F %23 %40 %3A %25"
    elsif user.to_s != "" && password.to_s == "" then "has a user name without a password"
    elsif !host.match?(/\A([\w.-]*|\[[\h:.]+\])\z/)
      "has a wrong host: name one server, and write an IPv6 address in brackets, as in redis://[::1]:6379"
    elsif !port.match?(/\A\d*\z/) || (port != "" && !port.to_i.between?(1, 65_535))
      "has a port that is not a number from 1 to 65535"
    elsif scheme != "unix" && !path.match?(%r{\A/?\d{0,9}\z}) then "has a path that is not the number of a database"
    elsif rest != "" then "has a part after ? or #, but options of a URL are not supported"
    else
      URI.parse(url) && nil
    end
  rescue URI::InvalidURIError
    "cannot be read: its host is wrong"
  end

  # Returns a server's text without the arguments of a command and without the password, with at most 500 characters.
  def shown(text)
    shown = text.split(/,? with args beginning with/, 2).first.to_s
    shown = shown.b.gsub(@secret, "***").force_encoding(Encoding::UTF_8).scrub if @secret
    # A call within another call passes here twice.
    shown += NO_PASSWORD if shown.match?(/\ANOAUTH|unauthenticated (multi)?bulk/) && !shown.end_with?(NO_PASSWORD)
    shown.size <= 500 ? shown : "#{shown[0, 500]}..."
  end

  def wait_until(timeout)
    RedisSemaphore.now + check("a timeout", timeout, 0..(2**53) - 1) if timeout
  end

  # Each request has its own client and channel, so its messages concern no other permit.
  def new_id
    host = Socket.gethostname.gsub(/[^A-Za-z0-9._-]/, "-")
    "P:#{host}.#{Process.pid}.#{SecureRandom.hex(8)}:1:#{@lease}:#{@group}#{SecureRandom.hex(16)}"
  end

  # The ID exists before the first call. So after an interrupt at any point, the request can be released.
  def give_back_on_error(id)
    result = yield id
    done = true
    result
  ensure # An error, a timeout, a signal or the end of the thread leaves no request behind.
    undisturbed { give_up(id) } unless done
  end

  # Ignores its own errors, because the earlier error matters. If the release fails, the server skips the request, or
  # the permit expires.
  def give_up(id)
    give_back(Permit.new(id, 0, 0, @name), GIVE_BACK)
  rescue Redis::BaseError
    false
  end

  def give_back(permit, patience)
    left = permit.expires_in
    was_sent = nil
    reply = again(patience, nil) do
      was_sent = permit.release_sent
      permit.release_sent = true
      call("release", "return", permit.id, patience: 0).reply
    rescue Redis::CommandError # The server has released nothing.
      permit.release_sent = was_sent
      raise
    end
    # If a reply was lost, the retry returns "unknown", because an earlier attempt released the permit.
    held = left.positive? && (reply[2] != 0 || was_sent)
    permit.release_sent = false
    permit.ends = 0
    serve_others(reply[1])
    held
  end

  # Calls wake until the server has no more work. Returns the last wake_in.
  def serve(wake_in, **limits)
    wake_in = call("wake", **limits).reply[1] while wake_in.zero?
    wake_in
  end

  # Calls wake like serve after a successful reply, but ignores errors. Nothing is retried, because the waiters call
  # wake, too.
  def serve_others(wake_in)
    serve(wake_in, patience: 0)
  rescue Redis::BaseError
    nil
  end

  # Runs the block without interruption, and raises an interrupt afterwards. The main thread uses another thread
  # for it, because handle_interrupt defers neither SIGINT nor exceptions of traps, and the main thread gets
  # these. Other threads run the block themselves: after the main thread has ended, no new thread can start.
  def undisturbed(&work)
    Thread.handle_interrupt(Object => :never) do # Object, because Thread#kill is no Exception.
      next yield unless Thread.current == Thread.main

      result = error = interrupt = nil
      thread = Thread.new do
        result = work.call
      rescue Exception => e
        error = e
      end
      begin
        Thread.handle_interrupt(SignalException => :immediate) { thread.join }
      rescue Exception => e
        interrupt ||= e
        retry
      end
      raise_alone(interrupt) if interrupt
      raise error if error

      result
    end
  end

  # Drops deferred exceptions, such as the one of a Timeout, because these would replace the interrupt.
  def raise_alone(interrupt)
    Thread.handle_interrupt(Object => :immediate) { Thread.pass }
  ensure # Timeout uses throw, which rescue does not catch.
    Thread.pending_interrupt? ? raise_alone(interrupt) : raise(interrupt)
  end

  # Usually a permit is free. Then no subscription is needed.
  def acquire_as(id, wait_until) = ask(id, "try", wait_until) || wait(id, wait_until)

  # Returns the permit, nil if none was granted, or the reply "queued".
  def ask(id, place, wait_until)
    again(PATIENCE, wait_until) do
      answer = call("acquire", @declared ? "declare_if_unset" : "declare", @limit, HEARTBEAT_TIMEOUT, id, place, wait_until: wait_until)
      _, wake_in, before, code, token = answer.reply
      unless @declared || [-1, @limit].include?(before)
        warn "semaphore #{@name}: the limit #{@limit} replaces the declared limit #{before}"
      end
      @declared = true
      return answer if code == 2

      if code.zero?
        return nil unless wake_in.zero?

        serve(wake_in, wait_until: wait_until)
        redo # A permit may be free now.
      end
      serve_others(wake_in)
      permit = Permit.new(id, token, ends_after(answer.sent), @name)
      return permit if permit.expires_in.positive?

      # The retry restarts the lease.
      raise Redis::TimeoutError, "the lease of #{@lease} ms expired before the reply arrived: use a longer lease"
    end
  end

  def wait(id, wait_until)
    channel = "sem:wake:#{id.split(':')[1]}"
    place = "wait"
    listener = connection = nil
    loop do
      # The server skips requests of a client that is not subscribed. So this subscribes before it queues.
      unless listener&.alive?
        if listener # Each subscription may be cut, so none of them may restart the timeout.
          check_time(wait_until)
          pause(wait_until)
        end
        connection = @redis._client.connection
        again(PATIENCE, wait_until) do
          # The gem calls `require` for each new connection, and RubyGems keeps its lock if an exception interrupts it.
          undisturbed { listener = Listener.new(@url, channel) } # It has nothing to close before it starts.
          listener.start
        end
      end
      asked = ask(id, place, wait_until)
      return asked if asked.is_a?(Permit)

      place = asked.reply[4]
      # After a failover, a new connection may lead to another server.
      next listener.close unless @redis._client.connection.equal?(connection)

      permit = wait_for_message(listener, id, asked, wait_until)
      return permit if permit
    end
  ensure
    begin
      undisturbed { listener&.close }
    ensure # A signal may have arrived just before the close began.
      undisturbed { listener.close } unless listener.nil? || listener.closed?
    end
  end

  # Returns a permit, or nil when the next heartbeat is due.
  def wait_for_message(listener, id, asked, wait_until)
    ask_at = asked.sent + ASK_EVERY
    wake_at = wake_at(asked, serve(asked.reply[1], wait_until: wait_until))
    loop do
      message = listener.next([wake_at, wait_until].compact.min)
      return nil if message == :ended

      token, ends = grant(message, id) if message
      now = RedisSemaphore.now
      # An earlier grant was lost before the server returned "queued", so its message is stale.
      if token && (token.zero? || ends - @lease >= asked.reply[0])
        # Another acquire returns why the request was removed. If half of the lease may be over, another
        # acquire restarts it.
        return nil if token.zero? || now - asked.sent >= @lease / 2

        return Permit.new(id, token, ends_after(asked.sent), @name)
      end
      check_time(wait_until)
      return nil if now >= ask_at

      wake_at = wake_at(asked, serve(0, wait_until: wait_until)) if now >= wake_at
    end
  end

  # Returns until when the lease is certainly valid. The server counts in whole ms.
  def ends_after(sent)
    sent + @lease - 1
  end

  # Returns when to call wake, or when the heartbeat is due. The server chooses the client that calls wake.
  def wake_at(asked, wake_in)
    ask_at = asked.sent + ASK_EVERY
    wake_in.negative? ? ask_at : [ask_at, RedisSemaphore.now + wake_in].min
  end

  # Returns the token and the expiry of a request in a message. Returns nil if the message does not contain the
  # request, or was not sent by a script. Releases other permits that this client was granted.
  def grant(message, id)
    return if message.bytesize > 1_048_576 || !message.force_encoding(Encoding::UTF_8).valid_encoding?

    name, *lines = message.split("\n", -1)
    return unless name == @name

    lines.map! { |line| line.match(/\A([^ ]+) (\d{1,16}) (\d{1,16})\z/)&.captures }
    return unless lines.all? { |found, *numbers| id?(found) && numbers.map(&:to_i).max < 2**53 }

    lines.each do |other, token, _|
      give_up(other) if other != id && token.to_i.positive? && other.start_with?(id[/.*?:.*?:/])
    end
    lines.assoc(id)&.drop(1)&.map(&:to_i)
  end

  def id?(text)
    found = ID.match(text)
    found && [found[1].to_i, found[3].to_i].max <= MAX_WEIGHT && found[2].to_i <= MAX_LEASE
  end

  # Calls a script, with retries: a repeated call has no further effect. The `Answer` contains a time before the first
  # attempt.
  def call(script, *arguments, patience: PATIENCE, wait_until: nil)
    sent = RedisSemaphore.now
    again(patience, wait_until) do
      reply = call_with_keys(script, arguments)
      unless reply.is_a?(Array) && reply.grep(Integer).size >= LEAST[script]
        raise Redis::CommandError, "the reply to #{script} is not of a Redis server"
      end

      Answer.new(reply, sent)
    end
  end

  # Names the keys for groups only if the semaphore has groups.
  def call_with_keys(script, arguments)
    @scripts.call(script, @keys.first(@named), arguments)
  rescue Redis::CommandError => e
    raise unless e.message.start_with?("SEM_GROUPS ")

    @named = @keys.size
    @scripts.call(script, @keys, arguments)
  end

  # Retries for this many ms while Redis is unavailable.
  def again(patience, wait_until)
    give_up = RedisSemaphore.now + patience
    begin
      yield
    rescue Redis::BaseError => e
      # This changes the error itself, because it becomes the cause of others.
      text = shown(e.message)
      e.message.replace(text) unless text == e.message
      raise unless passes?(e)
      check_time(wait_until, ": #{e.message}")
      raise if RedisSemaphore.now >= give_up

      @redis.close # The next call connects again.
      pause(wait_until)
      retry
    end
  end

  def check_time(wait_until, cause = "")
    return unless wait_until && RedisSemaphore.now >= wait_until

    raise Timeout, "semaphore #{@name}: no permit was granted in time#{cause}"
  end

  def pause(wait_until)
    sleep [0.2, wait_until && ((wait_until - RedisSemaphore.now) / 1000.0)].compact.min.clamp(0, 0.2)
  end

  def passes?(error) = error.is_a?(Redis::BaseConnectionError) || error.message.match?(MAY_PASS)

  # Runs the block. Version 4 of the library does not convert errors of a TLS handshake. Most of them may pass.
  def self.converting_errors
    yield
  rescue OpenSSL::SSL::SSLError, SystemCallError => e
    raise e.message.include?("certificate") ? Redis::BaseError : Redis::CannotConnectError, e.message
  end

  # Calls scripts by their SHA-1. If the server does not know a script, this sends its source.
  class Scripts
    MANIFEST = File.expand_path("../../lua/manifest.json", __dir__)
    ALL = JSON.parse(File.read(MANIFEST, encoding: "UTF-8"))["scripts"].to_h { |script| [script["name"], script] }

    def initialize(redis)
      @redis = redis
      @replied_at = 0
    end

    def call(name, keys, arguments)
      script = ALL.fetch(name)
      reply = RedisSemaphore.converting_errors do
        @redis.call("EVALSHA", script["sha1"], keys.size, *keys, *arguments)
      rescue Redis::CommandError => e
        raise unless e.message.start_with?("NOSCRIPT ")

        @redis.call("EVAL", script["source"], keys.size, *keys, *arguments)
      end
      @replied_at = RedisSemaphore.now
      reply
    end

    # Notices that the server or a proxy has closed an idle connection. The next call connects again.
    def check
      RedisSemaphore.converting_errors { @redis.ping } if RedisSemaphore.now - @replied_at > IDLE
    rescue Redis::BaseError # After an error of the server, the connection is used again.
      nil
    end
  end

  # Subscribes to a channel in a thread, because the library's subscribe blocks until the subscription ends.
  class Listener
    def initialize(url, channel, sharded: false)
      @subscription = [sharded ? :ssubscribe : :subscribe, channel]
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @events = []
      @closed = false
      # Keep-alives end the connection if the server's machine has failed. A Unix socket has none.
      keep_alive = url.start_with?("unix:") ? 0 : { time: 5, intvl: 5, probes: 2 }
      @redis = Redis.new(url: url, timeout: RESPONSE_SECONDS, reconnect_attempts: 0, tcp_keepalive: keep_alive)
    end

    # Returns itself when the server has confirmed the subscription.
    def start
      # The thread stores itself, because a signal may arrive before this method could store the thread.
      Thread.new do
        # A new thread inherits the mask of `undisturbed`, which would block `close` forever.
        Thread.handle_interrupt(Object => :immediate) do
          run if @mutex.synchronize { @thread = Thread.current unless @closed }
        end
      end
      listens = self.next(RedisSemaphore.now + (1000 * RESPONSE_SECONDS)) == :listening
      raise @error || Redis::TimeoutError unless listens

      self
    ensure
      close unless listens
    end

    # Returns the next message, nil if none arrives before this time, or :ended after the connection has ended.
    def next(time)
      @mutex.synchronize do
        while @events.empty?
          left = time - RedisSemaphore.now
          return nil unless left.positive?

          @changed.wait(@mutex, left / 1000.0)
        end
        @events.shift
      end
    end

    def alive? = @thread.alive?

    def closed? = @closed

    def close
      @mutex.synchronize { @closed = true }
      @thread&.kill
      @thread&.join
      @redis.close
    end

    private

    def run
      # The library's own subscribe does the same, but does not support sharded channels.
      RedisSemaphore.converting_errors do
        @redis._client.call_loop(@subscription) do |kind, _, text|
          case kind
          when "subscribe", "ssubscribe" then tell(:listening)
          when "message", "smessage" then tell(text.to_s)
          end
        end
      end
    rescue Redis::BaseError => e
      @error = e
    ensure
      tell(:ended)
    end

    def tell(event)
      @mutex.synchronize { @events << event }
      @changed.signal
    end
  end
end
