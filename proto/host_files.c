#include "host_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool full_path(const char *root, const char *path, char ret[HOST_FILES_PATH_BYTES])
{
	return snprintf(ret, HOST_FILES_PATH_BYTES, "%s%s", root, path) < HOST_FILES_PATH_BYTES;
}

/* Returns true for errors that last. Others pass: too many descriptors, no memory, a signal. */
static bool is_lasting(int error)
{
	return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == ELOOP ||
	       error == ENODEV || error == EOPNOTSUPP;
}

FILE *host_files_open(const char *root, const char *path, bool *missed)
{
	char full[HOST_FILES_PATH_BYTES];
	FILE *file;

	if (!full_path(root, path, full))
		return NULL;
	file = fopen(full, "re");
	*missed |= !file && !is_lasting(errno);
	return file;
}

void host_files_close(FILE *file, bool *missed)
{
	if (!file)
		return;
	*missed |= ferror(file) != 0;
	fclose(file);
}

bool host_files_read_line(const char *root, const char *path, char *line, size_t line_bytes, bool *missed)
{
	char full[HOST_FILES_PATH_BYTES];
	ssize_t n;
	char *end;
	int fd;

	if (!full_path(root, path, full))
		return false;
	fd = open(full, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, line, line_bytes - 1);
	*missed |= n < 0 && !is_lasting(errno);
	if (fd >= 0)
		close(fd);
	line[n > 0 ? n : 0] = '\0';
	end = strchr(line, '\n');
	if (!end)
		return false;
	*end = '\0';
	return true;
}

/* ---- Control groups ---- */

/* Returns true if the comma-separated list has the word. */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (; list; list = strchr(list, ',')) {
		list += *list == ',';
		if (strncmp(list, word, n) == 0 && (list[n] == ',' || list[n] == '\0'))
			return true;
	}
	return false;
}

/*
 * Reads a line of mountinfo: "36 25 0:31 ROOT MOUNT OPTIONS - TYPE SOURCE SUPER". Returns true if it is the
 * mount of the controller's cgroups. If both versions are mounted, version 1 has the controller.
 */
static bool read_mount(char *line, const char *controller, bool found_v1, struct cgroup *cgroup,
                       char top[HOST_FILES_PATH_BYTES / 2])
{
	char mount[HOST_FILES_PATH_BYTES / 2], type[32], super[256];
	char *rest = strstr(line, " - ");
	bool is_v1;

	if (!rest || sscanf(line, "%*s %*s %*s %511s %511s", top, mount) != 2 ||
	    sscanf(rest, " - %31s %*s %255s", type, super) != 2)
		return false;
	is_v1 = strcmp(type, "cgroup") == 0 && has_word(super, controller);
	if (!is_v1 && (strcmp(type, "cgroup2") != 0 || found_v1))
		return false;
	cgroup->is_v1 = is_v1;
	snprintf(cgroup->mount, sizeof cgroup->mount, "%s", mount);
	return true;
}

/* Reads the path of this process from /proc/self/cgroup: "7:memory:/a/b", or "0::/a/b" in version 2. */
static bool read_own_path(const char *root, const char *controller, bool is_v1,
                          char path[HOST_FILES_PATH_BYTES / 2], bool *missed)
{
	FILE *file = host_files_open(root, "/proc/self/cgroup", missed);
	char line[HOST_FILES_LINE_BYTES];
	bool found = false;

	while (file && !found && fgets(line, sizeof line, file)) {
		char *controllers = strchr(line, ':'), *at = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!at)
			continue;
		*at++ = '\0';
		at[strcspn(at, "\n")] = '\0';
		found = is_v1 ? has_word(controllers + 1, controller) : strcmp(controllers, ":") == 0;
		if (found)
			snprintf(path, HOST_FILES_PATH_BYTES / 2, "%s", at);
	}
	host_files_close(file, missed);
	return found;
}

bool cgroup_find(const char *root, const char *controller, struct cgroup *ret, bool *missed)
{
	FILE *file = host_files_open(root, "/proc/self/mountinfo", missed);
	char line[HOST_FILES_LINE_BYTES], top[HOST_FILES_PATH_BYTES / 2] = "",
	                                                              found_top[HOST_FILES_PATH_BYTES / 2] = "";
	char path[HOST_FILES_PATH_BYTES / 2];
	bool found = false;
	size_t n;

	*ret = (struct cgroup){0};
	while (file && fgets(line, sizeof line, file)) {
		if (!read_mount(line, controller, found && ret->is_v1, ret, top))
			continue;
		found = true;
		snprintf(found_top, sizeof found_top, "%s", top);
	}
	host_files_close(file, missed);
	if (!found || !read_own_path(root, controller, ret->is_v1, path, missed))
		return false;
	/* In a container a mount may begin below the root of all cgroups, or our path may be outside of it. */
	n = strcmp(found_top, "/") == 0 ? 0 : strlen(found_top);
	if (strncmp(path, found_top, n) == 0 && !strstr(path, ".."))
		snprintf(ret->path, sizeof ret->path, "%s", path + n);
	if (strcmp(ret->path, "/") == 0)
		ret->path[0] = '\0';
	return true;
}

void cgroup_folder(const struct cgroup *cgroup, char ret[HOST_FILES_PATH_BYTES])
{
	snprintf(ret, HOST_FILES_PATH_BYTES, "%s%s", cgroup->mount, cgroup->path);
}

bool cgroup_up(struct cgroup *cgroup)
{
	char *slash = strrchr(cgroup->path, '/');

	if (!slash)
		return false;
	*slash = '\0';
	return true;
}
