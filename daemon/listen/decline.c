#include "listen/decline.h"

#include <sys/socket.h>
#include <unistd.h>

#include "kops_types.h"
#include "message.h"

#define AT_MOST    4096 /* Linux's own limit of a queue: SOMAXCONN */
#define READ_FIRST 64   /* messages read from one client, so that closing does not discard the answer */

static void decline(int fd, const uint8_t *reply, size_t bytes)
{
	for (int i = 0; i < READ_FIRST && recv(fd, &(char){0}, 1, MSG_DONTWAIT) > 0; i++)
		;
	send(fd, reply, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(fd);
}

void decline_waiting(int fd, const char *sentence)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	uint8_t bytes[MESSAGE_BYTES_MAX];
	size_t len;

	reply.status = KOPS_E_SHUTDOWN;
	reply.message = (char *)sentence;
	if (fd < 0 || message_pack(&reply.base, bytes, &len) < 0)
		return;
	for (int i = 0; i < AT_MOST; i++) {
		int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (client < 0)
			break;
		decline(client, bytes, len);
	}
}
