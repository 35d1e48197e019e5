/*
 * rows.h: formats users, sessions and their jobs for people and in JSON, for kops-top and kops-client's stats,
 * sessions and trace.
 */
#ifndef KOPS_TOP_ROWS_H
#define KOPS_TOP_ROWS_H

#include "json.h"
#include "show.h"

struct show_text rows_age(double us);     /* like show_us(), then "5 min", "3.2 h", "4.1 days" */
struct show_text rows_latency(double us); /* like show_us(); "-" if there was no job */
struct show_text rows_user(uint32_t uid); /* "alice"; the number if it has no name */

#define ROWS_OP_COLUMNS 30
/* Formats a job as "gemm f32 512×512×64 +3": its first op, its size, and how many ops follow. */
struct show_line rows_op(const char *op, const kops_op_shape *shape, uint32_t n_ops);
struct show_line rows_running(const kops_running_job *job); /* also "120/760, 5.00 s of 38.0 s"; NULL: "" */

/* Prints the table of stats. */
void rows_users(FILE *out, const kops_list *users);

/* "3.1/62.8 GiB": used and total; "-" if unknown. */
struct show_text rows_memory(const kops_device_info *device);
struct show_text rows_utilization(const kops_device_info *device); /* "42%"; "-" */

/* The same as members of an object; null if unknown. */
void rows_memory_json(struct json *json, const kops_device_info *device);
/* All figures of a device or user, as members of an object. */
void rows_device_json(struct json *json, const kops_device_info *device);
void rows_user_json(struct json *json, const kops_user_info *user);
void rows_session_json(struct json *json, const kops_session_info *session);

#endif
