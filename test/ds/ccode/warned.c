// Opens two TCP sockets, in two processes.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	if (socket(AF_INET, SOCK_STREAM, 0) < 0)
		return 1;
	pid_t child = fork();
	if (child == 0)
		_exit(socket(AF_INET, SOCK_STREAM, 0) < 0);
	return socket(AF_INET, SOCK_STREAM, 0) < 0 || waitpid(child, NULL, 0) != child;
}
