#!/usr/bin/env ruby
# frozen_string_literal: true

# vectors.rb [FILE...]: runs these files, or all files of lua/vectors, on the server of REDIS_URL.

require_relative "semaphore"

URL = ENV.fetch("REDIS_URL", "redis://127.0.0.1")
FILES = Dir[File.expand_path("../../lua/vectors/*.json", __dir__)].sort
KEYS = %w[permits queue clients state order turns].freeze

class Mismatch < StandardError; end

class Case
  def initialize(redis, name)
    @redis = redis
    @scripts = RedisSemaphore::Scripts.new(redis)
    @variables = { "name" => name, "channel" => "sem:wake:#{name}", "sharded" => "sem:{#{name}}:wake:#{name}" }
    KEYS.each { |key| @variables[key] = "sem:{#{name}}:#{key}" }
  end

  def run(step)
    send("step_#{step.keys.first}", step)
  end

  def close
    @listener&.close
    @redis.call("DEL", *KEYS.map { |key| @variables[key] })
  end

  private

  def step_call(step)
    keys = step.fetch("with_keys", KEYS.first(4)).map { |key| @variables.fetch(key) }
    begin
      reply = @scripts.call(step["call"], keys, words(step["args"]))
    rescue Redis::CommandError => e
      raise Mismatch, e.message unless step["error"] && e.message.start_with?(step["error"])

      return
    end
    raise Mismatch, "the reply #{reply} instead of an error" if step["error"]

    expect(step["reply"], reply)
  end

  def step_command(step)
    reply = @redis.call(*words(step["command"]))
    expect(step["reply"], reply) if step.key?("reply")
  end

  def step_keys(step)
    step["keys"].each do |key, expected|
      name = @variables.fetch(key)
      list = key == "state" ? @redis.call("HGETALL", name) : @redis.call("ZRANGE", name, 0, -1, "WITHSCORES")
      found = list.each_slice(2).to_h
      raise Mismatch, "#{key} has #{found}" unless found.keys.sort == expected.keys.sort

      expected.each { |member, value| expect(value, found[member]) }
    end
  end

  def step_expires(step)
    step["expires"].each { |key, expected| expect(expected, @redis.call("PTTL", @variables.fetch(key))) }
  end

  def step_until(step)
    loop do
      seconds, microseconds = @redis.call("TIME").map(&:to_i)
      left = @variables.fetch(step["until"]) - (seconds * 1000) - (microseconds / 1000)
      break unless left.positive?

      sleep left / 1000.0
    end
  end

  def step_listen(step)
    @listener = RedisSemaphore::Listener.new(URL, @variables.fetch(step["listen"]), sharded: step["sharded"]).start
  end

  def step_message(step)
    message = @listener.next(RedisSemaphore.now + 5000)
    raise Mismatch, "no message came" unless message.is_a?(String)

    expect(step["message"], message.split("\n", -1).map { |line| line.split(" ", -1) })
  end

  def words(list)
    list.map { |word| word.is_a?(String) ? word : value(word) }
  end

  def value(expression)
    value = @variables.fetch(expression["is"])
    expression.key?("plus") ? value + expression["plus"] : value
  end

  def expect(expected, found)
    case expected
    when Array
      mismatch(expected, found) unless found.is_a?(Array) && found.size == expected.size
      expected.zip(found) { |part, its| expect(part, its) }
    when String
      mismatch(expected, found) unless found == expected
    else
      expect_number(expected, found)
    end
  end

  def expect_number(expected, found)
    return expect(value(expected), found) if expected.is_a?(Hash) && @variables[expected["is"]].is_a?(String)

    number = Integer(found, exception: false) || mismatch(expected, found)
    expected = { "from" => expected, "to" => expected } if expected.is_a?(Integer)
    mismatch(expected, found) if (expected.key?("is") && number != value(expected)) ||
                                 (expected.key?("above") && number <= @variables.fetch(expected["above"])) ||
                                 (expected.key?("from") && !number.between?(expected["from"], expected["to"]))
    @variables[expected["save"]] = number if expected.key?("save")
  end

  def mismatch(expected, found)
    raise Mismatch, "found #{found.inspect}, expected #{expected} of #{@variables}"
  end
end

redis = Redis.new(url: URL)
version = Gem::Version.new(redis.info("server").fetch("redis_version"))
passed = failed = 0
(ARGV.empty? ? FILES : ARGV).each do |file|
  JSON.parse(File.read(file, encoding: "UTF-8"))["cases"].each do |vector|
    next if Gem::Version.new(vector.fetch("needs", "0")) > version

    name = "vector-#{SecureRandom.hex(16)}"
    running = Case.new(redis, name)
    JSON.parse(JSON.generate(vector["steps"]).gsub("@", name)).each.with_index(1) do |step, number|
      running.run(step)
    rescue Mismatch, Redis::BaseError => e
      raise Mismatch, "step #{number} #{step}: #{e.message}"
    end
    passed += 1
  rescue Mismatch => e
    failed += 1
    warn "#{File.basename(file)}: #{vector['name']}: #{e.message}"
  ensure
    running&.close
  end
end
# If a client changed the text of a script, it would send the whole text with each call.
sha1s = RedisSemaphore::Scripts::ALL.values.map { |script| script["sha1"] }
unless redis.script(:exists, sha1s).all?
  failed += 1
  warn "the server does not know all scripts of the manifest"
end
puts "#{passed} cases passed, #{failed} failed"
exit failed.zero? && passed.positive?
