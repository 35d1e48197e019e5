/* verb_rows.h: what softmax, transpose and add share: f32 files, raw ones shaped by -m and -n. */
#ifndef KOPS_CLI_VERB_ROWS_H
#define KOPS_CLI_VERB_ROWS_H

#include "cli.h"
#include "task.h"

/* Opens a file; a raw one becomes an f32 matrix by -m and -n. An exit code. */
int verb_rows_open(struct cli *cli, const char *path, struct source *ret);

/* The whole verb for an op of one file; task lacks its input only. */
int verb_rows_run(struct cli *cli, const char *path, struct task *task);

#endif
