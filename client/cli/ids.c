#include "ids.h"

#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* As in daemon/config/file.c, whose settings name owners so. */
static bool look_up(bool is_group, const char *name, id_t *ret)
{
	const struct group *group = is_group ? getgrnam(name) : NULL;
	const struct passwd *user = is_group ? NULL : getpwnam(name);

	if (group)
		*ret = group->gr_gid;
	if (user)
		*ret = user->pw_uid;
	return group || user;
}

static bool read_number(const char *text, id_t *ret)
{
	unsigned long long id;

	if (!text[0] || text[strspn(text, "0123456789")])
		return false;
	id = strtoull(text, NULL, 10);
	if (id >= UINT32_MAX)
		return false;
	*ret = (id_t)id;
	return true;
}

bool id_find(bool is_group, const char *name, id_t *ret)
{
	return look_up(is_group, name, ret) || read_number(name, ret);
}
