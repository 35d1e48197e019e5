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
#define FOLDER_MODE 0700
#define ACL_ENTRIES 6

/* ---- Access ---- */

/* What others than the owner, who may do everything, may do: ACL_READ and so on. */
struct access {
	uid_t uid;
	gid_t gid;
	unsigned short user, group, everybody;
};

/* The binary form that Linux takes, so that libacl is not needed: linux/posix_acl_xattr.h. */
static int set_access(const char *path, const struct access *a)
{
	struct {
		struct posix_acl_xattr_header header;
		struct posix_acl_xattr_entry entries[ACL_ENTRIES];
	} acl = {
	    {htole32(POSIX_ACL_XATTR_VERSION)},
	    {{htole16(ACL_USER_OBJ), htole16(ACL_READ | ACL_WRITE | ACL_EXECUTE), htole32(ACL_UNDEFINED_ID)},
	     {htole16(ACL_USER), htole16(a->user), htole32(a->uid)},
	     {htole16(ACL_GROUP_OBJ), 0, htole32(ACL_UNDEFINED_ID)},
	     {htole16(ACL_GROUP), htole16(a->group), htole32(a->gid)},
	     {htole16(ACL_MASK), htole16(a->user | a->group), htole32(ACL_UNDEFINED_ID)},
	     {htole16(ACL_OTHER), htole16(a->everybody), htole32(ACL_UNDEFINED_ID)}},
	};

	return setxattr(path, ACL_NAME, &acl, sizeof acl, 0);
}

/* ---- The folder ---- */

/* The folder's path. False: a socket in it could have no name. */
static bool name_folder(struct user_sockets *u)
{
	struct sockaddr_un longest;

	if (!user_socket_address(u->everybodys, UINT_MAX, &longest))
		return false;
	*strrchr(longest.sun_path, '/') = '\0';
	memcpy(u->folder, longest.sun_path, sizeof u->folder);
	return true;
}

/* A predecessor that was killed left them. */
static void empty_folder(const struct user_sockets *u)
{
	DIR *folder = opendir(u->folder);
	struct dirent *entry;
	struct stat st;

	if (!folder)
		return;
	while ((entry = readdir(folder)))
		if (fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISSOCK(st.st_mode))
			unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
}

static bool make_folder(const struct user_sockets *u)
{
	struct stat st;

	if (mkdir(u->folder, FOLDER_MODE) < 0 && errno != EEXIST)
		return false;
	if (lstat(u->folder, &st) < 0)
		return false;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
		errno = EEXIST;
		return false;
	}
	empty_folder(u);
	return true;
}

/* Who may connect to everybody's socket may look for their own. */
static int let_in(const struct user_sockets *u)
{
	struct access access = {0};
	struct stat socket;

	if (lstat(u->everybodys, &socket) < 0)
		return -1;
	access.uid = socket.st_uid;
	access.gid = socket.st_gid;
	access.user = socket.st_mode & S_IWUSR ? ACL_EXECUTE : 0;
	access.group = socket.st_mode & S_IWGRP ? ACL_EXECUTE : 0;
	access.everybody = socket.st_mode & S_IWOTH ? ACL_EXECUTE : 0;
	return set_access(u->folder, &access);
}

/* NULL, or why there can be none. */
static const char *open_beside(struct user_sockets *u)
{
	if (!name_folder(u))
		return "its path is too long, or it has none";
	if (!user_socket_is_safe(u->everybodys))
		return "others may write to its folder";
	if (getxattr(u->everybodys, ACL_NAME, NULL, 0) > 0)
		return "it has an access control list";
	if (!make_folder(u) || let_in(u) < 0)
		return strerror(errno);
	return NULL;
}

void user_sockets_open(struct user_sockets *u, int fd)
{
	struct sockaddr_un address = {0};
	socklen_t len = sizeof address - 1; /* so that there is a zero at the end */
	const char *why;

	getsockname(fd, (struct sockaddr *)&address, &len);
	memcpy(u->everybodys, address.sun_path, sizeof u->everybodys);
	why = open_beside(u);
	if (!why)
		return;
	log_info("users have no sockets of their own beside %s, and all of them wait in a flood of "
	         "connections: %s",
	         u->everybodys, why);
	u->folder[0] = '\0';
}

void user_sockets_close(struct user_sockets *u)
{
	if (user_sockets_are_there(u))
		rmdir(u->folder); /* not where the service manager made it */
	u->folder[0] = '\0';
}

/* ---- The sockets ---- */

/* Nobody gets in before it is known who may: it does not listen yet. */
static int listen_for(int fd, const struct sockaddr_un *address, uid_t uid, int backlog)
{
	const struct access access = {.uid = uid, .user = ACL_READ | ACL_WRITE};

	if (bind(fd, (const struct sockaddr *)address, sizeof *address) < 0)
		return -1;
	if (set_access(address->sun_path, &access) == 0 && listen(fd, backlog) == 0)
		return 0;
	unlink(address->sun_path);
	return -1;
}

int user_sockets_add(const struct user_sockets *u, uid_t uid, int backlog)
{
	struct sockaddr_un address;
	int fd;

	user_socket_address(u->everybodys, uid, &address);
	if (let_in(u) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || listen_for(fd, &address, uid, backlog) == 0)
		return fd;
	close(fd);
	return -1;
}

void user_sockets_remove(const struct user_sockets *u, uid_t uid)
{
	struct sockaddr_un address;

	user_socket_address(u->everybodys, uid, &address);
	unlink(address.sun_path);
}
