/*
 * simulated_hanging_close.c: preloaded into kopsd, hangs in close() of a file named "never-closing" while the
 * file that KOPS_TEST_HANG names exists. As in a file system that does not answer, no signal ends the wait.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int never_closes(int fd)
{
	char link[32], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n < 0)
		return 0;
	path[n] = '\0';
	return strstr(path, "never-closing") != NULL;
}

int close(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
	const char *flag = getenv("KOPS_TEST_HANG");

	while (flag && never_closes(fd) && access(flag, F_OK) == 0)
		usleep(10000);
	return real(fd);
}
