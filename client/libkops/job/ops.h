/* ops.h: the ops of a job. */
#ifndef KOPS_CLIENT_OPS_H
#define KOPS_CLIENT_OPS_H

#include "libkops/base/state.h"

/* Makes room for n more bytes of the job's Submit. KOPS_E_NOMEM. */
int client_job_reserve(kops_job *job, size_t n);

#define CLIENT_OWN_MESSAGE_BYTES 128  /* room for an op's own message, of whichever type */
#define CLIENT_OP_BYTES_MAX      4096 /* packed: eight views of 120 bytes, 16 attributes, names */

/*
 * Adds an op: views[] and values[] are its operands and attributes in the order of its description, values as
 * in kops_attribute. The views of absent operands have no buffer.
 */
struct op;
int client_add_op(kops_job *job, const struct op *op, const kops_view *views, const double *values,
                  const char *kernel);

#endif
