#include "listen/user_sockets.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "log.h"
#include "user_socket.h"

#define ACL_NAME    "system.posix_acl_access"
#define ACL_ENTRIES 6
#define FOLDER_MODE 0700

/* ---- Access ---- */

/* Rights (ACL_READ and so on) beside the owner, who may do everything, and the owner's group, which may do
 * nothing. */
struct rights {
	uid_t uid;
	gid_t gid;
	unsigned short user, group, everybody;
};

/* The binary form that Linux takes, so that libacl is not needed: linux/posix_acl_xattr.h. */
static int set_rights(const char *path, const struct rights *r)
{
	struct {
		struct posix_acl_xattr_header header;
		struct posix_acl_xattr_entry entries[ACL_ENTRIES];
	} acl = {
	    {htole32(POSIX_ACL_XATTR_VERSION)},
	    {{htole16(ACL_USER_OBJ), htole16(ACL_READ | ACL_WRITE | ACL_EXECUTE), htole32(ACL_UNDEFINED_ID)},
	     {htole16(ACL_USER), htole16(r->user), htole32(r->uid)},
	     {htole16(ACL_GROUP_OBJ), 0, htole32(ACL_UNDEFINED_ID)},
	     {htole16(ACL_GROUP), htole16(r->group), htole32(r->gid)},
	     {htole16(ACL_MASK), htole16(r->user | r->group), htole32(ACL_UNDEFINED_ID)},
	     {htole16(ACL_OTHER), htole16(r->everybody), htole32(ACL_UNDEFINED_ID)}},
	};

	return setxattr(path, ACL_NAME, &acl, sizeof acl, 0);
}

/* ---- The folder ---- */

/*
 * The address of a file in the folder by the folder's descriptor, because the owner of a parent folder may
 * replace the folder. uid: of a socket in it; NULL: the folder itself.
 */
static struct sockaddr_un address_of(const struct user_sockets *u, const uid_t *uid)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int n = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", u->folder_fd);

	if (uid)
		snprintf(address.sun_path + n, sizeof address.sun_path - (size_t)n, "/%u", (unsigned)*uid);
	return address;
}

/* Lets those who may connect to everybody's socket search the folder. NULL, or why that failed. */
static const char *let_in(struct user_sockets *u)
{
	struct rights rights = {0};
	struct stat socket;

	if (lstat(u->everybodys, &socket) < 0)
		return strerror(errno);
	if (lgetxattr(u->everybodys, ACL_NAME, NULL, 0) > 0)
		return "the socket has an access control list";
	rights.uid = socket.st_uid;
	rights.gid = socket.st_gid;
	rights.user = socket.st_mode & S_IWUSR ? ACL_EXECUTE : 0;
	rights.group = socket.st_mode & S_IWGRP ? ACL_EXECUTE : 0;
	rights.everybody = socket.st_mode & S_IWOTH ? ACL_EXECUTE : 0;
	u->let_in = socket;
	return set_rights(address_of(u, NULL).sun_path, &rights) < 0 ? strerror(errno) : NULL;
}

bool user_sockets_are_current(const struct user_sockets *u)
{
	const struct stat *then = &u->let_in;
	struct stat now;

	return lstat(u->everybodys, &now) == 0 && now.st_ino == then->st_ino && now.st_dev == then->st_dev &&
	       now.st_ctim.tv_sec == then->st_ctim.tv_sec && now.st_ctim.tv_nsec == then->st_ctim.tv_nsec;
}

static void path_of_folder(const struct user_sockets *u, char path[USER_SOCKETS_PATH_BYTES])
{
	snprintf(path, USER_SOCKETS_PATH_BYTES, "%.*s" USER_SOCKET_SUFFIX,
	         (int)(USER_SOCKETS_PATH_BYTES - sizeof USER_SOCKET_SUFFIX), u->everybodys);
}

/* Removes sockets that a killed predecessor left. */
static void empty_folder(const struct user_sockets *u)
{
	int fd = openat(u->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	struct stat st;

	if (!folder) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(folder)))
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode))
			unlinkat(fd, entry->d_name, 0);
	closedir(folder);
}

/* Opens or makes the folder. Returns false with errno. */
static bool open_folder(struct user_sockets *u)
{
	char path[USER_SOCKETS_PATH_BYTES];
	struct stat st;

	path_of_folder(u, path);
	if (mkdir(path, FOLDER_MODE) < 0 && errno != EEXIST)
		return false;
	u->folder_fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (u->folder_fd < 0)
		return false;
	if (fstat(u->folder_fd, &st) < 0 || st.st_uid != geteuid()) {
		close(u->folder_fd);
		u->folder_fd = -1;
		errno = EEXIST;
		return false;
	}
	return true;
}

/* NULL, or why there are no such sockets. */
static const char *open_beside(struct user_sockets *u)
{
	struct sockaddr_un longest;
	const char *why;

	if (!user_socket_address(u->everybodys, UINT_MAX, &longest))
		return "the socket's path is missing or too long";
	if (!user_socket_is_safe(u->everybodys))
		return "other users may write to the socket's directory";
	if (!open_folder(u))
		return strerror(errno);
	why = let_in(u);
	if (!why)
		empty_folder(u);
	return why;
}

void user_sockets_open(struct user_sockets *u, int fd)
{
	struct sockaddr_un address = {0};
	socklen_t len = sizeof address - 1; /* so that it ends with a zero */
	const char *why;

	getsockname(fd, (struct sockaddr *)&address, &len);
	memcpy(u->everybodys, address.sun_path, sizeof u->everybodys);
	u->folder_fd = -1;
	why = open_beside(u);
	if (!why)
		return;
	log_info(
	    "cannot create a socket for each user beside %s, so a flood of connections delays all users: %s",
	    u->everybodys, why);
	user_sockets_close(u);
}

void user_sockets_close(struct user_sockets *u)
{
	char path[USER_SOCKETS_PATH_BYTES];

	if (u->folder_fd < 0)
		return;
	path_of_folder(u, path);
	rmdir(path); /* fails if the service manager made it */
	close(u->folder_fd);
	u->folder_fd = -1;
}

bool user_sockets_are_in(const struct user_sockets *u, const char *folder, size_t bytes)
{
	char path[USER_SOCKETS_PATH_BYTES];

	path_of_folder(u, path);
	return strlen(path) == bytes && memcmp(path, folder, bytes) == 0;
}

/* ---- The sockets ---- */

/* Sets the rights before it listens, so that nobody else can connect. */
static int listen_for(const struct user_sockets *u, int fd, uid_t uid, int backlog)
{
	const struct rights rights = {.uid = uid, .user = ACL_READ | ACL_WRITE};
	const struct sockaddr_un address = address_of(u, &uid);

	if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0)
		return -1;
	if (set_rights(address.sun_path, &rights) == 0 && listen(fd, backlog) == 0)
		return 0;
	user_sockets_remove(u, uid);
	return -1;
}

int user_sockets_add(struct user_sockets *u, uid_t uid, int backlog)
{
	int fd;

	if (u->folder_fd < 0 || let_in(u))
		return -1;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || listen_for(u, fd, uid, backlog) == 0)
		return fd;
	close(fd);
	return -1;
}

void user_sockets_remove(const struct user_sockets *u, uid_t uid)
{
	char name[16];

	snprintf(name, sizeof name, "%u", (unsigned)uid);
	unlinkat(u->folder_fd, name, 0);
}
