/*
 * mpi.h: what HPL needs of MPI when it is one process. It has no other to send messages to, so a message is a
 * mistake and ends the program.
 */
#ifndef KOPS_BENCH_ONE_PROCESS_MPI_H
#define KOPS_BENCH_ONE_PROCESS_MPI_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int MPI_Comm, MPI_Datatype, MPI_Request;
typedef ptrdiff_t MPI_Aint;
typedef struct {
	int MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;

enum { MPI_SUCCESS, MPI_COMM_NULL = -1, MPI_COMM_WORLD = 1, MPI_UNDEFINED = -2 };
enum { MPI_BYTE = 1, MPI_INT, MPI_DOUBLE };

static inline int MPI_Abort(MPI_Comm comm, int code)
{
	(void)comm;
	exit(code);
}

static inline int mpi_no_partner(const char *what)
{
	fprintf(stderr, "%s: this HPL was built for one process\n", what);
	exit(1);
}

static inline double MPI_Wtime(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int mpi_set(int *result, int value)
{
	*result = value;
	return MPI_SUCCESS;
}

#define MPI_Init(argc, argv)                              ((void)(argc), (void)(argv), MPI_SUCCESS)
#define MPI_Finalize()                                    MPI_SUCCESS
#define MPI_Comm_rank(comm, result)                       mpi_set(result, 0)
#define MPI_Comm_size(comm, result)                       mpi_set(result, 1)
#define MPI_Comm_split(comm, color, key, result)          mpi_set(result, MPI_COMM_WORLD)
#define MPI_Comm_free(comm)                               mpi_set(comm, MPI_COMM_NULL)
#define MPI_Type_contiguous(n, type, result)              mpi_set(result, type)
#define MPI_Type_vector(n, len, step, type, result)       mpi_set(result, type)
#define MPI_Type_create_struct(n, len, at, types, result) mpi_set(result, MPI_BYTE)
#define MPI_Type_commit(type)                             MPI_SUCCESS
#define MPI_Type_free(type)                               MPI_SUCCESS
#define MPI_Get_address(place, result)                    (*(result) = (MPI_Aint)(place), MPI_SUCCESS)
#define MPI_Send(...)                                     mpi_no_partner("MPI_Send")
#define MPI_Ssend(...)                                    mpi_no_partner("MPI_Ssend")
#define MPI_Issend(...)                                   mpi_no_partner("MPI_Issend")
#define MPI_Recv(...)                                     mpi_no_partner("MPI_Recv")
#define MPI_Irecv(...)                                    mpi_no_partner("MPI_Irecv")
#define MPI_Sendrecv(...)                                 mpi_no_partner("MPI_Sendrecv")
#define MPI_Iprobe(...)                                   mpi_no_partner("MPI_Iprobe")
#define MPI_Wait(...)                                     mpi_no_partner("MPI_Wait")

#endif
