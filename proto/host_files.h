/*
 * host_files.h: reads /proc and /sys of this process's host, and finds its control groups.
 *
 * A missing file means that something does not apply. A file that could not be read says nothing: *missed
 * becomes true, and the caller tries again later.
 */
#ifndef KOPS_HOST_FILES_H
#define KOPS_HOST_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define HOST_FILES_PATH_BYTES 1024
#define HOST_FILES_LINE_BYTES 1024

/* Opens the file at root + path; root is "" for the real host, and another folder in tests. NULL if there is
 * none. */
FILE *host_files_open(const char *root, const char *path, bool *missed);
/* Closes a file that host_files_open() returned; NULL is allowed. */
void host_files_close(FILE *file, bool *missed);
/*
 * Reads a file of one line with one read, because files below /proc/sys return nothing to a second read.
 * Returns false if there is no such file, or no complete line in it.
 */
bool host_files_read_line(const char *root, const char *path, char *line, size_t line_bytes, bool *missed);

/* The cgroup of this process for one controller; its folder is mount + path. */
struct cgroup {
	bool is_v1;
	char mount[HOST_FILES_PATH_BYTES / 2];
	char path[HOST_FILES_PATH_BYTES / 2]; /* begins with '/', or is empty at the top of the mount */
};

/* Finds this process's cgroup for the controller ("memory", "cpu"). False if it is in none. */
bool cgroup_find(const char *root, const char *controller, struct cgroup *ret, bool *missed);
void cgroup_folder(const struct cgroup *cgroup, char ret[HOST_FILES_PATH_BYTES]);
/* Moves to the parent. Returns false if there is none below the mount. */
bool cgroup_up(struct cgroup *cgroup);

#endif
