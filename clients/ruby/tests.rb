# frozen_string_literal: true

# tests.rb: what is particular to Ruby, on the server of REDIS_URL.

require_relative "semaphore"

semaphore = RedisSemaphore.new("test-#{SecureRandom.hex(16)}", limit: 1)
# It raises Lost if the child gave the permit back.
semaphore.hold do
  exit if fork.nil?
  Process.wait
end
semaphore.hold do |permit|
  exit!(semaphore.release(permit)) if fork.nil?
  abort "FAILED: a child gave back what its parent holds" if Process.wait2.last.success?
end
puts "tests.rb: passed"
