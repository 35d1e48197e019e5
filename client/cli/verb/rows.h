/* rows.h: what softmax, transpose and add share: files, raw ones shaped by -m and -n, of --dtype. */
#ifndef KOPS_CLI_VERB_ROWS_H
#define KOPS_CLI_VERB_ROWS_H

#include "cli.h"
#include "verb/task.h"

/* Of raw files: --dtype or f32. */
kops_dtype verb_rows_dtype(const struct cli *cli);

/* Opens a file; a raw one becomes a matrix of dtype `raw` by -m and -n. An exit code. */
int verb_rows_open(struct cli *cli, const char *path, kops_dtype raw, struct source *ret);

/* The whole verb for an op of one file; task lacks its input only. */
int verb_rows_run(struct cli *cli, const char *path, struct task *task);

#endif
