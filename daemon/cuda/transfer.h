/*
 * transfer.h: moves the elements of a view between host memory and their dense image on the GPU: in as few DMA
 * copies as the layout allows; by a kernel that reads or writes pinned host memory, or by the CPU, where they
 * would be too many.
 */
#ifndef KOPS_CUDA_TRANSFER_H
#define KOPS_CUDA_TRANSFER_H

#include "plan/mover.h"

extern const struct stage_mover cuda_mover; /* of streams that are cudaStream_t */

#endif
