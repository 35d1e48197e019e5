/* receipt.h: the answer to a job, kept. */
#ifndef KOPS_CLIENT_RECEIPT_H
#define KOPS_CLIENT_RECEIPT_H

#include "libkops/base/state.h"

/* The members of a message that tell an op's size. A newer daemon's further extents are left out. */
kops_op_shape client_op_shape(Kops__V1__DType dtype, size_t n, const uint64_t *extents);

/* Makes room for the receipt of a job that is to be submitted: each that succeeds has one. KOPS_E_NOMEM. */
int client_receipt_reserve(kops_job *job);

/* Copies a receipt into job->receipt, which grows as needed. Without memory for that, texts are left out. */
void client_receipt_keep(kops_job *job, const Kops__V1__Receipt *receipt);

#endif
