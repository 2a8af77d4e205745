// SPDX-License-Identifier: Apache-2.0
//
// Boost.Asio, whose threads all wait in one edge-triggered epoll set:
//
//	asio serve PORT
//	asio talk PORT MEGABYTES
//
// A request is a letter and twelve digits: E, so many bytes to be sent back; U, so many,
// whose digest is the answer; D, so many are wanted. Of 13 clients the first asks for
// MEGABYTES either way, others for two; each prints its digests.
#include <boost/asio.hpp>
#include <boost/crc.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

enum { THREADS = 4, CLIENTS = 13, ROUNDS = 200, PIECE = 65000, HEAD = 13, DIGEST = 8 };

static std::vector<char> block(1000003);
static std::mutex lock;
static std::map<int, std::string> said;

[[noreturn]] static void die(const char *what)
{
	fprintf(stderr, "asio: %s\n", what);
	_exit(1);
}

// What both ends have. Handlers run in a strand, one of them at a time, by any thread.
class End : public std::enable_shared_from_this<End> {
public:
	explicit End(tcp::socket s) : socket(std::move(s)), strand(asio::make_strand(socket.get_executor())), piece(PIECE) {}
	virtual ~End() = default;

protected:
	tcp::socket socket;
	asio::strand<asio::any_io_executor> strand;
	std::vector<char> piece;
	uint64_t left = 0;
	size_t at = 0;
	boost::crc_32_type digest;

	template <class F> auto handler(F f)
	{
		return asio::bind_executor(strand, [me = shared_from_this(), f](Error e, size_t n) { e ? me->fail() : f(n); });
	}
	virtual void fail() = 0;

	template <class F> void put(const void *bytes, size_t n, F then) { asio::async_write(socket, asio::buffer(bytes, n), handler([then](size_t) { then(); })); }
	template <class F> void get(void *bytes, size_t n, F then) { asio::async_read(socket, asio::buffer(bytes, n), handler([then](size_t) { then(); })); }

	// give sends `left` bytes of the block.
	template <class F> void give(F then)
	{
		if (left == 0)
			return then();
		size_t n = std::min<uint64_t>({left, PIECE, block.size() - at});
		const char *from = block.data() + at;
		left -= n;
		at = (at + n) % block.size();
		put(from, n, [this, then] { give(then); });
	}

	// take gets `left` bytes into the digest.
	template <class F> void take(F then)
	{
		if (left == 0)
			return then();
		socket.async_read_some(asio::buffer(piece.data(), std::min<uint64_t>(left, PIECE)), handler([this, then](size_t n) {
			digest.process_bytes(piece.data(), n);
			left -= n;
			take(then);
		}));
	}

	std::string sum() const
	{
		char text[DIGEST + 1];
		snprintf(text, sizeof text, "%08x", digest.checksum());
		return text;
	}
};

class Server : public End {
public:
	using End::End;
	void serve()
	{
		get(head, HEAD, [this] {
			left = std::stoull(std::string(head + 1, HEAD - 1));
			at = 0;
			digest.reset();
			if (head[0] == 'E')
				echo();
			else if (head[0] == 'D')
				give([this] { serve(); });
			else
				take([this] {
					answer = sum();
					put(answer.data(), DIGEST, [this] { serve(); });
				});
		});
	}

private:
	char head[HEAD];
	std::string answer;
	void fail() override {} // the client has ended
	void echo()
	{
		if (left == 0)
			return serve();
		socket.async_read_some(asio::buffer(piece.data(), std::min<uint64_t>(left, PIECE)), handler([this](size_t n) {
			left -= n;
			put(piece.data(), n, [this] { echo(); });
		}));
	}
};

class Client : public End {
public:
	Client(asio::io_context &io, int id, uint64_t size) : End(tcp::socket(io)), id(id), size(size) {}
	void talk(const tcp::endpoint &to)
	{
		socket.connect(to);
		socket.set_option(tcp::no_delay(true));
		echo();
	}

private:
	int id, round = 0;
	uint64_t size;
	std::string out, up = std::string(DIGEST, ' ');
	void fail() override { die("a client's connection ended"); }
	void ask(char what, uint64_t n)
	{
		char text[HEAD + 1];
		snprintf(text, sizeof text, "%c%012llu", what, (unsigned long long)n);
		out = text;
		left = n;
	}
	void echo()
	{
		if (round++ == ROUNDS)
			return upload();
		size_t n = 1 + (size_t)(round * 7919 + id * 31) % 30000;
		ask('E', n);
		out.append(block.data() + round, n);
		put(out.data(), out.size(), [] {}); // while the answer is read
		get(piece.data(), n, [this, n] {
			if (memcmp(piece.data(), block.data() + round, n) != 0)
				die("other bytes came back");
			echo();
		});
	}
	void upload()
	{
		ask('U', size);
		put(out.data(), HEAD, [this] {
			give([this] { get(&up[0], DIGEST, [this] { download(); }); });
		});
	}
	void download()
	{
		ask('D', size);
		put(out.data(), HEAD, [this] {
			take([this] {
				std::lock_guard<std::mutex> held(lock);
				said[id] = up + " " + sum();
				socket.close();
			});
		});
	}
};

static void accept(tcp::acceptor &listener)
{
	listener.async_accept([&listener](Error e, tcp::socket s) {
		if (!e) {
			s.set_option(tcp::no_delay(true));
			std::make_shared<Server>(std::move(s))->serve();
		}
		accept(listener);
	});
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	for (size_t i = 0; i < block.size(); i++)
		block[i] = (char)(i * 31 + (i >> 8));
	asio::io_context io;
	tcp::endpoint here(asio::ip::address_v4::loopback(), (unsigned short)atoi(argv[2]));
	std::unique_ptr<tcp::acceptor> listener;
	if (argc == 3) {
		listener = std::make_unique<tcp::acceptor>(io, here);
		accept(*listener);
	}
	for (int i = 0; argc > 3 && i < CLIENTS; i++)
		std::make_shared<Client>(io, i, (uint64_t)(i ? 2 : atoi(argv[3])) << 20)->talk(here);
	std::vector<std::thread> threads;
	for (int i = 0; i < THREADS; i++)
		threads.emplace_back([&io] { io.run(); });
	for (std::thread &t : threads)
		t.join();
	for (const auto &[id, digests] : said)
		printf("%d: %s\n", id, digests.c_str());
}
