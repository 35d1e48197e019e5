/*
 * failing_calls.c: preloaded into kopsd, makes calls fail as if the kernel refused them. KOPS_FAIL_FLOCK is the
 * errno of each flock(). KOPS_FAIL_ACCEPT names a file: while it exists, each accept4() fails with ENOMEM and
 * adds a byte to it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

int flock(int fd, int operation)
{
	int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
	const char *error = getenv("KOPS_FAIL_FLOCK");

	if (!error)
		return real(fd, operation);
	errno = atoi(error);
	return -1;
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict len, int flags)
{
	int (*real)(int, struct sockaddr *, socklen_t *, int) =
	    (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
	const char *path = getenv("KOPS_FAIL_ACCEPT");
	int file = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

	if (file < 0)
		return real(fd, address, len, flags);
	if (write(file, "x", 1) == 1)
		close(file);
	errno = ENOMEM;
	return -1;
}
