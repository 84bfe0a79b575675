# frozen_string_literal: true

# A thin client of redis-semaphore. README.md tells how to use it.

require "json"
require "redis"
require "securerandom"
require "socket"

class RedisSemaphore
  # No permit came in time.
  class Timeout < StandardError; end
  # The permit was lost before the block of hold had ended.
  class Lost < StandardError; end

  HEARTBEAT_TIMEOUT = 15_000 # ms: the server passes over a waiter that was silent for so long
  ASK_EVERY = HEARTBEAT_TIMEOUT / 3
  PATIENCE = 30_000 # ms: how long a call is repeated while Redis is away
  GIVE_BACK = 2_000 # ms: and how long giving back what did not become a permit
  RESPONSE_SECONDS = 2
  MAX_WEIGHT = 4_294_967_295 # and limit
  MAX_LEASE = 604_800_000
  ID = /\A[PSN]:[A-Za-z0-9._-]{1,100}:([1-9][0-9]{0,9}):([1-9][0-9]{0,8}):[A-Za-z0-9_-]{16,64}\z/
  PASSING = "LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|READONLY|ERR max number of clients"
  # Redis 6.2 puts a text in front of errors that commands in a script meet.
  MAY_PASS = /\A(ERR Error running script .*: -)?(#{PASSING}) /

  # The time in ms of a clock that nobody sets back or forth.
  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)

  Permit = Struct.new(:id, :token, :ends, :name) do
    # Whether a release that ended with an error may have given it back.
    attr_accessor :release_sent

    def initialize(...)
      super
      @pid = Process.pid
      @release_sent = false
    end

    # A forked child has a copy, which is not its own.
    def own? = @pid == Process.pid

    # For how many ms it is held for sure. 0: it may be lost.
    def left = [ends - RedisSemaphore.now, 0].max
  end

  Answer = Struct.new(:reply, :sent, :repeated)

  def initialize(name, limit:, lease: 30_000, url: ENV.fetch("REDIS_URL", "redis://127.0.0.1"))
    @name = check_name(name)
    @limit = check("a limit", limit, 0..MAX_WEIGHT)
    @lease = check("a lease", lease, 1..MAX_LEASE)
    @url = url
    @redis = Redis.new(url: url, timeout: RESPONSE_SECONDS, reconnect_attempts: 0)
    @scripts = Scripts.new(@redis)
    @keys = %w[permits queue clients state].map { |key| "sem:{#{@name}}:#{key}" }
  end

  # A permit, or nil when none is free, or somebody else waits.
  def try
    give_back_on_error(new_id) { |id| ask(id, "try", nil) }
  end

  # Waits for a permit. Raises Timeout when it did not come in so many ms.
  def acquire(timeout: nil)
    wait_until = wait_until(timeout)
    give_back_on_error(new_id) { |id| acquire_as(id, wait_until) }
  end

  # Whether the permit was held until now, by this process.
  def release(permit)
    raise ArgumentError, "the permit is one of #{permit.name}, not of #{@name}" unless permit.name == @name
    return false unless permit.own?

    undisturbed { give_back(permit, [permit.left, PATIENCE].min) }
  end

  # Yields while a permit is held. Raises Lost at the end if it was lost before.
  def hold(timeout: nil)
    wait_until = wait_until(timeout)
    id = new_id
    permit = held = begun = nil
    finish = lambda do
      begun = true
      permit ? release(permit) : give_up(id)
    end
    begin
      permit = acquire_as(id, wait_until)
      result = yield permit
    ensure
      begin
        held = undisturbed(&finish)
      ensure # The signal may have come just before that.
        undisturbed(&finish) unless begun
      end
    end
    raise Lost, "the permit #{id} of #{@name} was lost" unless held

    result
  end

  def close = @redis.close

  private

  def check(what, number, range)
    return number if number.is_a?(Integer) && range.cover?(number)

    raise ArgumentError, "#{what} is a whole number from #{range.min} to #{range.max}, not #{number.inspect}"
  end

  def check_name(given)
    if given.is_a?(String)
      name = given.dup.force_encoding(Encoding::UTF_8) # It may come as bytes, in any encoding.
      return name.freeze if name.bytesize.between?(1, 512) && name.valid_encoding? && !name.match?(/[{}\x00-\x1f\x7f]/)
    end
    raise ArgumentError, "a name is a string of 1 to 512 bytes of UTF-8, without { and } and control characters, " \
                         "not #{given.inspect[0, 600]}"
  end

  def wait_until(timeout)
    RedisSemaphore.now + check("a timeout", timeout, 0..(2**53) - 1) if timeout
  end

  # With a client of its own, and so a channel: what comes there is about nothing else that is held.
  def new_id
    host = Socket.gethostname.gsub(/[^A-Za-z0-9._-]/, "-")
    "P:#{host}.#{Process.pid}.#{SecureRandom.hex(8)}:1:#{@lease}:#{SecureRandom.hex(16)}"
  end

  # The ID is known before anything is sent: wherever an interrupt comes, there is something to give back.
  def give_back_on_error(id)
    result = yield id
    done = true
    result
  ensure # An error, a timeout, a signal, the end of the thread: nothing is left behind.
    undisturbed { give_up(id) } unless done
  end

  # What counts is the error before; where this fails it ends by itself, as nobody asks for it any more.
  def give_up(id)
    give_back(Permit.new(id, 0, 0, @name), GIVE_BACK)
  rescue Redis::BaseError
    false
  end

  def give_back(permit, patience)
    left = permit.left
    repeated = permit.release_sent
    permit.release_sent = true
    answer = call("release", "return", permit.id, patience: patience)
    # Where a reply was lost, the second one is "unknown", since the first try found the permit.
    held = left.positive? && (answer.reply[2] != 0 || answer.repeated || repeated)
    permit.release_sent = false
    serve_others(answer.reply[1])
    held
  end

  # While there is more to do than the server does in one call. The wake_in after that.
  def serve(wake_in, **limits)
    wake_in = call("wake", **limits).reply[1] while wake_in.zero?
    wake_in
  end

  # The same after an answer that is good, whatever comes of this. So it is not repeated, either: whoever
  # waits calls wake, too.
  def serve_others(wake_in)
    serve(wake_in, patience: 0)
  rescue Redis::BaseError
    nil
  end

  # In a thread, as handle_interrupt does not keep off SIGINT, nor what a program's trap raises, and
  # those come in the main thread. An interrupt is raised at the end. Other threads do it themselves:
  # they may have to when the main thread has ended, and there are no new threads then.
  def undisturbed(&work)
    Thread.handle_interrupt(Object => :never) do # Object, as Thread#kill is no Exception.
      next yield unless Thread.current == Thread.main

      thread = Thread.new(&work)
      thread.report_on_exception = false
      interrupt = nil
      begin
        thread.join
      rescue Exception => e
        interrupt ||= e # or the error of the work
        retry if thread.alive?
      end
      raise interrupt if interrupt

      thread.value
    end
  end

  # Most of the time nobody waits. Then there is no need to listen.
  def acquire_as(id, wait_until) = ask(id, "try", wait_until) || wait(id, wait_until)

  # The permit, nil if it was refused, or else the Answer that says "queued".
  def ask(id, place, wait_until)
    again(PATIENCE, wait_until) do
      answer = call("acquire", @declared ? "declare_if_unset" : "declare", @limit, HEARTBEAT_TIMEOUT, id, place, wait_until: wait_until)
      _, wake_in, before, code, token = answer.reply
      unless @declared || [-1, @limit].include?(before)
        warn "the limit of #{@name} was declared as #{before}, now as #{@limit}"
      end
      @declared = true
      return answer if code == 2

      if code.zero?
        return nil unless wake_in.zero?

        serve(wake_in, wait_until: wait_until)
        redo # One may be free now.
      end
      serve_others(wake_in)
      permit = Permit.new(id, token, ends_after(answer.sent), @name)
      return permit if permit.left.positive?

      # Asking again begins the lease anew.
      raise Redis::TimeoutError, "answers come later than #{@lease} ms, when the lease has ended"
    end
  end

  def wait(id, wait_until)
    channel = "sem:wake:#{id.split(':')[1]}"
    place = "wait"
    listener = connection = nil
    loop do
      # Who is not heard listening when its turn comes is taken for gone. So listen first, ask then.
      unless listener&.alive?
        connection = @redis._client.connection
        listener = again(PATIENCE, wait_until) { Listener.new(@url, channel) }
      end
      asked = ask(id, place, wait_until)
      return asked if asked.is_a?(Permit)

      place = asked.reply[4]
      # A new connection may lead to another server, after a failover.
      next listener.close unless @redis._client.connection.equal?(connection)

      permit = wait_for_message(listener, id, asked, wait_until)
      return permit if permit
    end
  ensure
    listener&.close
  end

  # A permit, or nil when it is time to ask again.
  def wait_for_message(listener, id, asked, wait_until)
    ask_at = asked.sent + ASK_EVERY
    wake_at = wake_at(asked, serve(asked.reply[1], wait_until: wait_until))
    loop do
      message = listener.next([wake_at, wait_until].compact.min)
      return nil if message == :ended

      token, ends = grant(message, id) if message
      now = RedisSemaphore.now
      # Otherwise it was granted before the server said "queued", and lost since: long ago.
      if token && (token.zero? || ends - @lease >= asked.reply[0])
        # Asking tells why it left the queue without a permit. And when half of the lease may be
        # over, asking begins it anew.
        return nil if token.zero? || now - asked.sent >= @lease / 2

        return Permit.new(id, token, ends_after(asked.sent), @name)
      end
      raise Timeout, "no permit of #{@name} came in time" if wait_until && now >= wait_until
      return nil if now >= ask_at

      wake_at = wake_at(asked, serve(0, wait_until: wait_until)) if now >= wake_at
    end
  end

  # Until when a lease is surely held: the server counts in whole ms.
  def ends_after(sent)
    sent + @lease - 1
  end

  # When to call wake, if not to ask again: the server chooses who does.
  def wake_at(asked, wake_in)
    ask_at = asked.sent + ASK_EVERY
    wake_in.negative? ? ask_at : [ask_at, RedisSemaphore.now + wake_in].min
  end

  # Token and end of lease that a message tells for a request. Nil if it says nothing about it, or is
  # nothing that a script sends. Gives back what else this client got.
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
    found && found[1].to_i <= MAX_WEIGHT && found[2].to_i <= MAX_LEASE
  end

  # Each script may be called twice. The time is that before it was called first.
  def call(script, *arguments, patience: PATIENCE, wait_until: nil)
    sent = RedisSemaphore.now
    tries = 0
    again(patience, wait_until) do
      tries += 1
      Answer.new(@scripts.call(script, @keys, arguments), sent, tries > 1)
    end
  end

  # Again and again while Redis is away, for so many ms.
  def again(patience, wait_until)
    give_up = RedisSemaphore.now + patience
    begin
      yield
    rescue Redis::BaseError => e
      raise unless passes?(e)
      raise Timeout, "no permit of #{@name} came in time: #{e.message}" if wait_until && RedisSemaphore.now >= wait_until
      raise if RedisSemaphore.now >= give_up

      @redis.close # It connects anew.
      sleep [0.2, wait_until && ((wait_until - RedisSemaphore.now) / 1000.0)].compact.min.clamp(0, 0.2)
      retry
    end
  end

  def passes?(error) = error.is_a?(Redis::BaseConnectionError) || error.message.match?(MAY_PASS)

  # Calls scripts by their SHA-1; a server that has forgotten one gets it again.
  class Scripts
    MANIFEST = File.expand_path("../../lua/manifest.json", __dir__)
    ALL = JSON.parse(File.read(MANIFEST, encoding: "UTF-8"))["scripts"].to_h { |script| [script["name"], script] }

    def initialize(redis)
      @redis = redis
    end

    def call(name, keys, arguments)
      script = ALL.fetch(name)
      begin
        @redis.call("EVALSHA", script["sha1"], keys.size, *keys, *arguments)
      rescue Redis::CommandError => e
        raise unless e.message.start_with?("NOSCRIPT ")

        @redis.call("EVAL", script["source"], keys.size, *keys, *arguments)
      end
    end
  end

  # Listens on a channel, in a thread, as this library's subscribe returns only at its end.
  class Listener
    # Returns when the server has confirmed it.
    def initialize(url, channel, sharded: false)
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @events = []
      # With keep-alives, so that it ends when the server's machine is gone.
      @redis = Redis.new(url: url, timeout: RESPONSE_SECONDS, reconnect_attempts: 0,
                         tcp_keepalive: { time: 5, intvl: 5, probes: 2 })
      @thread = Thread.new { run(sharded ? :ssubscribe : :subscribe, channel) }
      listens = self.next(RedisSemaphore.now + (1000 * RESPONSE_SECONDS)) == :listening
      raise @error || Redis::TimeoutError unless listens
    ensure # Nobody else can close it, if this raises.
      close unless listens
    end

    # The next message, nil when none came until then, :ended when none will come any more.
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

    def close
      @thread&.kill
      @thread&.join
      @redis&.close
    end

    private

    def run(subscribe, channel)
      # The library's own subscribe does just this, but has no sharded channels.
      @redis._client.call_loop([subscribe, channel]) do |kind, _, text|
        case kind
        when "subscribe", "ssubscribe" then tell(:listening)
        when "message", "smessage" then tell(text)
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
