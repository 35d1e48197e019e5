#include "core_dump.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* OpenBLAS maps 32 MiB at least. Stacks of threads are smaller, and so are other mappings of the allocator. */
#define LIBRARY_BYTES (32ull << 20)

static bool includes_matrices;

void core_dump_include_matrices(bool include)
{
	includes_matrices = include;
}

void core_dump_exclude(void *address, uint64_t bytes)
{
	if (!includes_matrices)
		madvise(address, bytes, MADV_DONTDUMP);
}

/* ---- Libraries' mappings ---- */

/* A line of /proc/self/maps: "START-END rw-p OFFSET DEVICE INODE", and a name unless it is anonymous. */
#define LINE_BYTES 128

/* Reads a hexadecimal number and advances *at past it. */
static uintptr_t read_hex(const char **at)
{
	uintptr_t value = 0;

	for (;; ++*at) {
		char c = **at;

		if (c >= '0' && c <= '9')
			value = value << 4 | (uintptr_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uintptr_t)(c - 'a' + 10);
		else
			return value;
	}
}

/* The fields are separated by single spaces; without a name, spaces may follow the last. */
static bool has_name(const char *fields)
{
	for (unsigned i = 0; i < 4 && fields; i++) {
		fields = strchr(fields, ' ');
		fields = fields ? fields + 1 : NULL;
	}
	return fields && fields[strspn(fields, " ")] != '\0';
}

static void exclude_line(const char *line)
{
	uintptr_t start = read_hex(&line), end;

	if (*line++ != '-')
		return;
	end = read_hex(&line);
	if (strncmp(line, " rw-p ", 6) == 0 && end - start >= LIBRARY_BYTES && !has_name(line + 1))
		madvise((void *)start, end - start, MADV_DONTDUMP);
}

/* Appends a character. A line that is too long, which is one with a name, loses its last characters. Returns
 * the new length. */
static size_t add(char line[LINE_BYTES], size_t n, char c)
{
	if (c != '\n') {
		line[n] = c;
		return n + 2 < LINE_BYTES ? n + 1 : n;
	}
	line[n] = '\0';
	exclude_line(line);
	return 0;
}

/* Does not use stdio, which the signal may have interrupted. */
void core_dump_exclude_libraries(void)
{
	char line[LINE_BYTES], chunk[1024];
	size_t length = 0;
	ssize_t n;
	int fd = includes_matrices ? -1 : open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	while ((n = read(fd, chunk, sizeof chunk)) > 0)
		for (ssize_t i = 0; i < n; i++)
			length = add(line, length, chunk[i]);
	close(fd);
}
