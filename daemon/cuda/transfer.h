/* transfer.h: moves the elements of a view between host memory and their dense image on the GPU. */
#ifndef KOPS_CUDA_TRANSFER_H
#define KOPS_CUDA_TRANSFER_H

#include <cuda_runtime_api.h>

#include "cuda/layout.h"

/*
 * Enqueues an upload (host → image) or a download (image → host), in as few DMA copies as the layout
 * allows; a kernel that reads or writes pinned host memory, or the CPU, where they would be too many.
 * host: the memory's first byte. Where the memory is not pinned the call returns after the elements were read
 * or written; the caller has then made sure that earlier downloads are through. 0, KOPS_E_NOMEM, KOPS_E_FAULT.
 */
int cuda_upload(const struct cuda_layout *layout, const void *host, bool pinned, void *image,
                cudaStream_t stream);
int cuda_download(const struct cuda_layout *layout, void *host, bool pinned, const void *image,
                  cudaStream_t stream);

#endif
