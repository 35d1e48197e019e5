/* rows.h: users, sessions and their jobs for people and in JSON: for kops-client's stats, sessions and trace,
 * and for kops-top. */
#ifndef KOPS_TOP_ROWS_H
#define KOPS_TOP_ROWS_H

#include "json.h"
#include "show.h"

struct show_text rows_age(double us);     /* as show_us(), then "5 min", "3.2 h", "4.1 days" */
struct show_text rows_latency(double us); /* as show_us(); "-" where there was no job */
struct show_text rows_user(uint32_t uid); /* "alice"; the number where there is no name */

#define ROWS_OP_COLUMNS 30
/* "gemm f32 512×512×64 +3": the first op of a job, with its size, and how many follow it. */
struct show_line rows_op(const char *op, const kops_op_shape *shape, uint32_t n_ops);
struct show_line rows_running(const kops_running_job *job); /* that, "120/760, 5.00 s of 38.0 s"; NULL: "" */

/* Of stats: a table. */
void rows_users(FILE *out, const kops_list *users);

/* "3.1/62.8 GiB": used, of what there is; "-" where it is not known. */
struct show_text rows_memory(const kops_device_info *device);
struct show_text rows_utilization(const kops_device_info *device); /* "42%"; "-" */

/* The same as members of an object; null where it is not known. */
void rows_memory_json(struct json *json, const kops_device_info *device);
/* All figures of each, as members of an object. */
void rows_device_json(struct json *json, const kops_device_info *device);
void rows_user_json(struct json *json, const kops_user_info *user);
void rows_session_json(struct json *json, const kops_session_info *session);

#endif
