/* fd.c: descriptors that libkops keeps, and how it knows that a number is still its own. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libkops/base/fd.h"

#define FIRST 3 /* below are standard input, output and error, open or not */

static int note(struct descriptor *ret, int number)
{
	struct stat st;
	if (fstat(number, &st) < 0)
		return -1;
	*ret = (struct descriptor){.number = number, .device = st.st_dev, .inode = st.st_ino};
	return 0;
}

static void close_quietly(int number)
{
	int error = errno;
	close(number);
	errno = error;
}

int client_fd_raise(int number)
{
	if (number < 0 || number >= FIRST)
		return number;
	int higher = fcntl(number, F_DUPFD_CLOEXEC, FIRST);
	if (higher < 0 && errno == EINVAL)
		errno = EMFILE; /* the limit on descriptors is not above FIRST */
	close_quietly(number);
	return higher;
}

int client_fd_keep(struct descriptor *ret, int number)
{
	int raised = client_fd_raise(number);
	if (raised < 0)
		return -1;
	if (note(ret, raised) == 0)
		return 0;
	close_quietly(raised);
	return -1;
}

int client_fd_duplicate(struct descriptor *ret, int number)
{
	return client_fd_keep(ret, fcntl(number, F_DUPFD_CLOEXEC, FIRST));
}

bool client_fd_is_ours(const struct descriptor *d)
{
	struct stat st;
	if (d->number < 0)
		return false;
	if (fstat(d->number, &st) < 0)
		return errno != EBADF; /* a file that cannot be examined is still open */
	return st.st_dev == d->device && st.st_ino == d->inode;
}

void client_fd_close(struct descriptor *d)
{
	if (client_fd_is_ours(d))
		close(d->number);
	d->number = -1;
}
