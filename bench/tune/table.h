/*
 * table.h: the tuning table as `kops-bench tune` writes it. kopsd reads it (daemon/tuning.h shows one): a
 * first line, then a section for each device and version, a class of shapes in each line.
 */
#ifndef KOPS_BENCH_TUNE_TABLE_H
#define KOPS_BENCH_TUNE_TABLE_H

#include <stdio.h>

#include "tuning_table.h"
#include "why.h"

#define TUNE_TABLE_PATH "/var/cache/kopsd/tuning" /* kopsd's default for tuning-table */

/* Lines of one section, in the order of their coming: "CLASS KERNEL US [KERNEL US …]". */
struct tune_lines {
	char **list;
	size_t n, room;
};

/* Takes the line over, which came from malloc(); one of the same class is replaced. 0 or KOPS_E_NOMEM. */
int tune_lines_add(struct tune_lines *lines, char *line);
void tune_lines_free(struct tune_lines *lines); /* allowed on a zeroed one */

/*
 * What a file holds, ended by a NUL; *ret_text is NULL where there is no such file. Free with free().
 * KOPS_E_SYSTEM where it cannot be read, KOPS_E_INVALID where it is no tuning table or a symbolic link, with a
 * sentence in why.
 */
int tune_table_read(const char *path, char **ret_text, char *why);

/*
 * Writes `old` (or NULL) with these lines in the section "DAEMON on DESCRIPTION". In it the classes that were
 * not measured anew stay where there is room, and so do the sections of other devices; not those of the same
 * model under another version of kopsd or its driver, which nobody would read any more.
 */
void tune_table_write(FILE *out, const char *old, const char *daemon, const char *description, const char *date,
                      const struct tune_lines *lines);

#endif
