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
#include "progress.h"
#include "show.h"

#define STEP_BYTES  (4ull << 20)    /* read or written at a time, if progress is shown */
#define CALL_BYTES  (1024ull << 20) /* otherwise; read() stops below 2 GiB anyway */
#define PATIENCE_US 500e3           /* before progress is shown */
#define INTERVAL_US 100e3
#define BAR_COLUMNS 20

/* Shows a bar, the rate since the beginning, and how long the rest takes at that rate. */
static void show(const char *verb, const char *path, uint64_t done, uint64_t total, double taken_us)
{
	double share = (double)done / (double)total;
	char bar[BAR_COLUMNS + 1], line[256];

	for (int i = 0; i < BAR_COLUMNS; i++)
		bar[i] = i < share * BAR_COLUMNS ? '#' : '.';
	bar[BAR_COLUMNS] = 0;
	snprintf(line, sizeof(line), "[%s] %.0f %%, %.20s, %.16s left, %s %.120s", bar, 100 * share,
	         show_rate((double)done, taken_us).text, show_us(taken_us * (1 - share) / share).text, verb,
	         path);
	progress_show(line);
}

/* Reads into `to` from an offset, or writes `from`. Returns the bytes done. */
static uint64_t move(int fd, const char *path, char *to, const char *from, uint64_t bytes, uint64_t offset)
{
	bool shows = bytes > STEP_BYTES && progress_is_possible();
	uint64_t done = 0, most = shows ? STEP_BYTES : CALL_BYTES;
	double began_us = cli_now_us(), next_us = began_us + PATIENCE_US;

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
		double now_us = shows ? cli_now_us() : 0;
		if (now_us < next_us)
			continue;
		show(to ? "reading" : "writing", path, done, bytes, now_us - began_us);
		next_us = now_us + INTERVAL_US;
	}
	if (shows)
		progress_erase();
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
