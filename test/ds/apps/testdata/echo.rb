# An echo server with a thread for each connection, and a client.
#
#	echo.rb serve PORT
#	echo.rb talk  PORT ROUNDS
#
# A message is its length in four bytes and as many more.
require 'socket'
require 'digest/sha2' # what is loaded at its first use must not be by several threads
what, port, rounds = ARGV[0], ARGV[1].to_i, ARGV[2].to_i

if what == 'serve'
  server = TCPServer.new('127.0.0.1', port)
  loop do
    Thread.new(server.accept) do |s|
      while (head = s.read(4))
        s.write(head + s.read(head.unpack1('N')).to_s)
      end
      s.close
    end
  end
end
digests = (0...4).map do |connection|
  Thread.new do
    s = TCPSocket.new('127.0.0.1', port)
    digest, random = Digest::SHA256.new, Random.new(connection)
    rounds.times do |i|
      message = random.bytes([0, 1, 60, 120, 481, 5000, 70_000, 300_000].sample(random: random))
      message = [message.size].pack('N') + message
      writer = Thread.new { s.write(message) }
      got = s.read(message.size)
      raise "round #{i} differs" unless got == message
      writer.join
      digest << got
    end
    s.close_write
    raise 'more than was sent' if s.read != ''
    digest.hexdigest
  end
end
puts digests.map(&:value)
