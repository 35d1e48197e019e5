#include "files/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

#define LARGE_BYTES (256ull << 20)
#define STEP_BYTES  (32ull << 20)   /* read or written at a time, if progress is shown */
#define CALL_BYTES  (1024ull << 20) /* otherwise; read() stops below 2 GiB anyway */
#define INTERVAL_US 100e3

static void show(const char *verb, const char *path, uint64_t done, uint64_t total, double *last_us)
{
	double now = cli_now_us();

	if (now - *last_us < INTERVAL_US)
		return;
	*last_us = now;
	fprintf(stderr, "\r%s %s: %3.0f %% of %.1f GiB\033[K", verb, path, 100.0 * (double)done / (double)total,
	        (double)total / (double)(1ull << 30));
}

/* Reads into `to` from an offset, or writes `from`. Returns the bytes done. */
static uint64_t move(int fd, const char *path, char *to, const char *from, uint64_t bytes, uint64_t offset)
{
	bool shown = bytes > LARGE_BYTES && isatty(STDERR_FILENO);
	uint64_t done = 0, most = shown ? STEP_BYTES : CALL_BYTES;
	double last_us = 0;

	errno = 0;
	while (done < bytes) {
		size_t part = bytes - done < most ? bytes - done : most;
		ssize_t n =
		    to ? pread(fd, to + done, part, (off_t)(offset + done)) : write(fd, from + done, part);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		errno = 0;
		done += (uint64_t)n;
		if (shown)
			show(to ? "reading" : "writing", path, done, bytes, &last_us);
	}
	if (shown)
		fputs("\r\033[K", stderr);
	return done;
}

/* Copies a pipe's content into memory, since its size must be known. Returns a descriptor, or -1 with errno. */
static int spool(int from)
{
	static char block[1 << 16];
	int memory = memfd_create("kops-input", MFD_CLOEXEC);
	ssize_t n = -1;

	while (memory >= 0 && (n = read(from, block, sizeof(block))) > 0)
		if (transfer_write(memory, "", block, (uint64_t)n) < 0)
			break;
	if (n == 0 && lseek(memory, 0, SEEK_CUR) > 0)
		return memory;
	int saved = n == 0 ? ENODATA : errno;
	close(memory);
	errno = saved;
	return -1;
}

int transfer_open(const char **path, char *why)
{
	static bool stdin_taken;
	bool standard = strcmp(*path, "-") == 0;
	struct stat st;

	if (standard && stdin_taken)
		return why_invalid(why, "only one file can be -; save the other one and give its name");
	stdin_taken |= standard;
	*path = standard ? "standard input" : *path;
	int fd = standard ? dup(STDIN_FILENO) : open(*path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return why_invalid(why, "cannot open %s: %s", *path, strerror(errno));
	if (!standard && (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode)))
		return fd;
	int memory = spool(fd);
	if (memory < 0)
		why_invalid(why, "cannot read %s: %s", *path, strerror(errno));
	close(fd);
	return memory < 0 ? KOPS_E_INVALID : memory;
}

uint64_t transfer_read(int fd, const char *path, void *data, uint64_t bytes, uint64_t offset)
{
	return move(fd, path, data, NULL, bytes, offset);
}

int transfer_write(int fd, const char *path, const void *data, uint64_t bytes)
{
	return move(fd, path, NULL, data, bytes, 0) == bytes ? 0 : -1;
}
