/* file.c: lines NAME = VALUE under [kopsd], [user NAME] and [group NAME]. */
#include "config/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "config/names.h"
#include "config/values.h"
#include "kops_types.h"

struct file {
	const char *path;
	unsigned line;
	bool has_section;                      /* [kopsd] */
	struct config_owner *owner;            /* the section's owner; NULL: [kopsd] */
	unsigned set_in_line[CONFIG_SETTINGS]; /* 0: not set here */
	unsigned owner_set_in_line[CONFIG_OWNERS_MAX][CONFIG_LIMITS];
};

/* Cuts white space at both ends, in place. */
static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	return text;
}

/* A '#' or ';' at the start of a line or after white space begins a comment. */
static void cut_comment(char *text)
{
	for (char *p = text; *p; p++) {
		if ((*p == '#' || *p == ';') && (p == text || isspace((unsigned char)p[-1]))) {
			*p = '\0';
			return;
		}
	}
}

static bool find_id_of_name(bool is_group, const char *name, id_t *ret_id)
{
	const struct group *group = is_group ? getgrnam(name) : NULL;
	const struct passwd *user = is_group ? NULL : getpwnam(name);

	if (group)
		*ret_id = group->gr_gid;
	if (user)
		*ret_id = user->pw_uid;
	return group || user;
}

static bool read_id(const char *name, id_t *ret_id)
{
	unsigned long long id;

	if (!name[0] || name[strspn(name, "0123456789")])
		return false;
	id = strtoull(name, NULL, 10);
	if (id >= UINT32_MAX) /* UINT32_MAX stands for no id */
		return false;
	*ret_id = (id_t)id;
	return true;
}

/* Finds an id by name, or reads it as a number. Returns false if the system has no such name. */
static bool find_id(bool is_group, const char *name, id_t *ret_id)
{
	return find_id_of_name(is_group, name, ret_id) || read_id(name, ret_id);
}

/* Returns false if the system cannot tell now, which differs from there being no such name. */
static bool can_look_up(bool is_group, const char *name)
{
	id_t id;

	errno = 0;
	return find_id(is_group, name, &id) ||
	       (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != EINTR && errno != EIO);
}

/* "[user NAME]" or "[group NAME]". */
static bool parse_owner(const char *text, bool *ret_is_group, char name[CONFIG_OWNER_BYTES])
{
	char kind[8];
	int len = 0;

	_Static_assert(CONFIG_OWNER_BYTES == 64, "the width of the name below");
	if (sscanf(text, "[%7s %63[^]]%n", kind, name, &len) != 2 || strcmp(text + len, "]") != 0)
		return false;
	*ret_is_group = strcmp(kind, "group") == 0;
	return *ret_is_group || strcmp(kind, "user") == 0;
}

static bool is_same_owner(const struct config_owner *a, const struct config_owner *b)
{
	if (a->is_group != b->is_group || a->is_known != b->is_known)
		return false;
	return a->is_known ? a->id == b->id : strcmp(a->name, b->name) == 0;
}

/* Returns the owner from an earlier section, which may use another name, or a new one. NULL: there are too
 * many. */
static struct config_owner *get_owner(struct config *config, bool is_group, const char *name,
                                      const char *origin)
{
	struct config_owner *owner = config->owners, *end = owner + config->n_owners;
	struct config_owner wanted = {.is_group = is_group};

	wanted.is_known = find_id(is_group, name, &wanted.id);
	snprintf(wanted.name, sizeof(wanted.name), "%s", name);
	while (owner < end && !is_same_owner(owner, &wanted))
		owner++;
	if (owner < end)
		return owner;
	if (config->n_owners == CONFIG_OWNERS_MAX)
		return NULL;
	config->n_owners++;
	*owner = wanted;
	snprintf(owner->origin, sizeof(owner->origin), "%s", origin);
	return owner;
}

static int parse_section(struct config *config, struct file *file, const char *text, const char *origin,
                         char *why)
{
	char name[CONFIG_OWNER_BYTES];
	bool is_group;

	if (parse_owner(text, &is_group, name)) {
		if (!can_look_up(is_group, trim(name))) {
			config_fail(why, "%s: cannot look up %s: %s", origin, text, strerror(errno));
			return KOPS_E_SYSTEM;
		}
		file->owner = get_owner(config, is_group, trim(name), origin);
		if (!file->owner)
			return config_fail(why, "%s: %s exceeds the limit of %d user and group sections",
			                   origin, text, CONFIG_OWNERS_MAX);
		return 0;
	}
	if (strcmp(text, "[kopsd]") != 0)
		return config_fail(why,
		                   "%s: unknown section %.80s; there are [kopsd], [user NAME] and [group NAME]",
		                   origin, text);
	if (file->has_section)
		return config_fail(why, "%s: duplicate section [kopsd]; keep one", origin);
	file->has_section = true;
	file->owner = NULL;
	return 0;
}

static int assign_limit(struct config_owner *owner, const struct setting *s, const char *text,
                        const char *origin, char *why)
{
	int rc = config_read_number(s, text, origin, &owner->limits[s->limit].value, why);

	if (rc == 0)
		snprintf(owner->limits[s->limit].origin, CONFIG_TEXT_BYTES, "%s", origin);
	return rc;
}

static int parse_setting(struct config *config, struct file *file, char *text, const char *origin, char *why)
{
	char where[CONFIG_TEXT_BYTES + 2];
	const struct setting *s;
	char *equals = strchr(text, '='), *key, *value;
	unsigned *set_in_line;

	if (!equals)
		return config_fail(why, "%s: \"%.80s\" is not a setting; write NAME = VALUE", origin, text);
	*equals = '\0';
	key = trim(text);
	value = trim(equals + 1);

	s = config_find(SOURCE_FILE, key);
	if (!s) {
		snprintf(where, sizeof(where), "%s: ", origin);
		return config_fail_unknown(why, where, SOURCE_FILE, key);
	}
	if (file->owner && s->limit == NO_LIMIT)
		return config_fail(why, "%s: %s is not a limit of one user; move it to [kopsd]", origin, key);
	set_in_line = file->owner ? &file->owner_set_in_line[file->owner - config->owners][s->limit]
	                          : &file->set_in_line[s - config_settings];
	if (*set_in_line)
		return config_fail(why, "%s: %s is already set in line %u of this file; keep one", origin, key,
		                   *set_in_line);
	*set_in_line = file->line;
	return file->owner ? assign_limit(file->owner, s, value, origin, why)
	                   : config_assign(config, s, value, origin, why);
}

static int parse_line(struct config *config, struct file *file, char *line, size_t len, char *why)
{
	char origin[CONFIG_TEXT_BYTES], *text;

	snprintf(origin, sizeof(origin), "%.200s:%u", file->path, file->line);
	if (strlen(line) != len)
		return config_fail(why, "%s: holds a NUL byte; this is not a text file", origin);
	cut_comment(line);
	text = trim(line);
	if (!text[0])
		return 0;
	if (text[0] == '[')
		return parse_section(config, file, text, origin, why);
	return parse_setting(config, file, text, origin, why);
}

/* Reading other kinds of file may block forever. /dev/null stands for no settings. */
static bool may_be_read(const struct stat *st)
{
	return S_ISREG(st->st_mode) || (S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3));
}

/* Opens a regular file. NULL with errno, which is EINVAL if it is not a regular file. */
static FILE *open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	FILE *f = NULL;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && may_be_read(&st))
		f = fdopen(fd, "r");
	else
		errno = EINVAL;
	if (!f)
		close(fd);
	return f;
}

int config_read_file(struct config *config, const char *path, bool may_be_absent, char *why)
{
	struct file file = {.path = path};
	size_t capacity = 0;
	char *line = NULL;
	ssize_t len;
	int rc = 0;
	FILE *f = open_regular(path);

	if (!f && may_be_absent && errno == ENOENT)
		return 0;
	if (!f && errno == EINVAL)
		return config_fail(
		    why, "the configuration file %.300s is not a regular file; replace it with a text file",
		    path);
	if (!f)
		return config_fail(why, "cannot open the configuration file %.300s: %s", path, strerror(errno));

	errno = 0;
	while (rc == 0 && (len = getline(&line, &capacity, f)) >= 0) {
		file.line++;
		rc = parse_line(config, &file, line, (size_t)len, why);
	}
	if (rc == 0 && !feof(f)) { /* it did not fail for lack of memory */
		config_fail(why, "cannot read the configuration file %.300s: %s", path, strerror(errno));
		rc = KOPS_E_SYSTEM;
	}

	free(line);
	fclose(f);
	return rc;
}

static int is_fragment(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > 5 && strcmp(entry->d_name + len - 5, ".conf") == 0;
}

/* Compares bytes, so that the order does not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

int config_read_fragments(struct config *config, const char *path, char *why)
{
	struct dirent **entries;
	char *dir = NULL, *file;
	int n, rc = 0;

	if (asprintf(&dir, "%s.d", path) < 0)
		return config_fail(why, "out of memory while reading %.300s", path);
	n = scandir(dir, &entries, is_fragment, by_name);
	if (n < 0 && errno != ENOENT)
		rc = config_fail(why, "cannot list the configuration directory %.300s: %s", dir,
		                 strerror(errno));

	for (int i = 0; i < n; i++) {
		if (rc == 0 && asprintf(&file, "%s/%s", dir, entries[i]->d_name) < 0)
			rc = config_fail(why, "out of memory while reading %.300s", dir);
		else if (rc == 0) {
			rc = config_read_file(config, file, false, why);
			free(file);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	free(dir);
	return rc;
}
