#include "user_socket.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

bool user_socket_address(const char *everybodys, uid_t uid, struct sockaddr_un *ret)
{
	ret->sun_family = AF_UNIX;
	return *everybodys && snprintf(ret->sun_path, sizeof ret->sun_path, "%s" USER_SOCKET_SUFFIX "/%u",
	                               everybodys, (unsigned)uid) < (int)sizeof ret->sun_path;
}

bool user_socket_is_safe(const char *everybodys)
{
	char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	const char *slash = strrchr(everybodys, '/');
	struct stat st;

	snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - everybodys) + 1 : 1,
	         slash ? everybodys : ".");
	return stat(folder, &st) == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH));
}
