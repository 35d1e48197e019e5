/* emulated.h: the emulated GPU, for programs that run kernels on it. */
#ifndef KOPS_EMULATED_H
#define KOPS_EMULATED_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Sets the GPU that kernels run on from here on: its number of multiprocessors, and the seed of its threads'
 * order. text is printed if a kernel cannot go on, and must stay valid.
 */
void emulated_gpu(unsigned multiprocessors, unsigned long long seed, const char *text);

#ifdef __cplusplus
}
#endif

#endif
