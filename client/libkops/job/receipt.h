/* receipt.h: keeps the answer to a job. */
#ifndef KOPS_CLIENT_RECEIPT_H
#define KOPS_CLIENT_RECEIPT_H

#include "libkops/base/state.h"

/*
 * Converts an op's type and extents on the wire. Extents beyond the struct's, from a newer daemon, are left
 * out.
 */
kops_op_shape client_op_shape(Kops__V1__DType dtype, size_t n, const uint64_t *extents);

/* Makes room for the receipt of a job before it is submitted, so that each success has one. KOPS_E_NOMEM. */
int client_receipt_reserve(kops_job *job);

/*
 * Copies a receipt into job->receipt, which grows as needed. Leaves texts out if there is no memory for them.
 */
void client_receipt_keep(kops_job *job, const Kops__V1__Receipt *receipt);

#endif
