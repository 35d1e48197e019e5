/* emulated.h: the emulated GPU, for the program that runs kernels on it. */
#ifndef KOPS_EMULATED_H
#define KOPS_EMULATED_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The GPU that kernels run on from here on: how many multiprocessors it has, in which order its threads run.
 * text is said when a kernel fails in such a way that it cannot go on, and must stay.
 */
void emulated_gpu(unsigned multiprocessors, unsigned long long seed, const char *text);

#ifdef __cplusplus
}
#endif

#endif
