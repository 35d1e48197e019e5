/*
 * tuning_table.h: what kopsd, which reads tuning tables, and kops-bench tune, which writes them, have to agree
 * on. The format is in daemon/device/tuning.h.
 */
#ifndef KOPS_TUNING_TABLE_H
#define KOPS_TUNING_TABLE_H

#define TUNING_FIRST_LINE "kops tuning table 1"

/* kopsd's loop waits while it reads a table. */
#define TUNING_BYTES_MAX   (4u << 20) /* of a file */
#define TUNING_CLASSES_MAX 16384      /* of a device: lines, those of the same class and of unknown rows too */
#define TUNING_ROWS_MAX    16         /* of a class */

#endif
