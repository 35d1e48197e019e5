/*
 * kops_types.h: constants shared by kops.h, the wire and the daemon: error codes, element types, precisions,
 * priorities. Their values are those on the wire and never change. Included by kops.h.
 */
#ifndef KOPS_TYPES_H
#define KOPS_TYPES_H

#define KOPS_RANK_MAX 4 /* axes of a view */

/* What functions return: 0, or one of these. `kops_strerror()` has a short text for each. */
enum kops_status {
	KOPS_OK = 0,
	KOPS_E_PROTOCOL = -1,     /* the peer broke the protocol */
	KOPS_E_INVALID = -2,      /* an argument makes no sense */
	KOPS_E_RANGE = -3,        /* a view exceeds its buffer */
	KOPS_E_SHAPE = -4,        /* shapes do not fit together */
	KOPS_E_DTYPE = -5,        /* element type not accepted here */
	KOPS_E_OVERLAP = -6,      /* output overlaps an input or itself */
	KOPS_E_NOT_FOUND = -7,    /* no such buffer or job */
	KOPS_E_EXISTS = -8,       /* id already in use */
	KOPS_E_UNSUPPORTED = -9,  /* no kernel can do this; the sentence names what could */
	KOPS_E_DEVICE = -10,      /* no such device, or the buffer is on another one */
	KOPS_E_NOMEM = -11,       /* out of host or device memory */
	KOPS_E_QUOTA = -12,       /* over a limit of this user */
	KOPS_E_BUSY = -13,        /* queue full; kops_job_retry_after_us() says when to try again */
	KOPS_E_DEADLINE = -14,    /* the job had not started by its deadline */
	KOPS_E_CANCELLED = -15,   /* kops_cancel() withdrew the job */
	KOPS_E_SHUTDOWN = -16,    /* the daemon is stopping */
	KOPS_E_LOST = -17,        /* a RESIDENT buffer's content was lost in a restart */
	KOPS_E_INTERRUPTED = -18, /* the daemon went away, and repeating could be wrong */
	KOPS_E_FD = -19,          /* not a memfd, or seals are missing */
	KOPS_E_VERSION = -20,     /* daemon and library have no protocol version in common */
	KOPS_E_FAULT = -21,       /* the device failed */
	KOPS_E_READONLY = -22,    /* output view in a read-only buffer */
	KOPS_E_CONNECT = -32,     /* cannot reach kopsd */
	KOPS_E_TIMEOUT = -33,     /* no answer in time */
	KOPS_E_STATE = -34,       /* call not allowed in this state */
	KOPS_E_SYSTEM = -35,      /* a system call failed; errno is in the sentence */
};

/*
 * Element types. f16 is IEEE 754 binary16, bf16 the upper half of an f32. c64 and c128 are the complex numbers
 * of two f32 and of two f64, the real part first, as in C and NumPy. The table of ops in kops.h
 * says which op takes what.
 */
typedef enum kops_dtype {
	KOPS_F32 = 1,
	KOPS_F64 = 2,
	KOPS_F16 = 3,
	KOPS_BF16 = 4,
	KOPS_I32 = 5, /* signed */
	KOPS_C64 = 6,
	KOPS_C128 = 7,
} kops_dtype;

/* What a kernel may do to f32 operands of a gemm; see Accuracy in kops.h. */
typedef enum kops_precision {
	KOPS_PRECISION_F32 = 0,
	KOPS_PRECISION_IEEE = 1,
	KOPS_PRECISION_TF32 = 2,
	KOPS_PRECISION_BF16 = 3,
} kops_precision;

/* What a reduce computes. */
typedef enum kops_reduction {
	KOPS_SUM = 0,
	KOPS_MAX = 1,
	KOPS_MEAN = 2,
	KOPS_MIN = 3,
	KOPS_PROD = 4,
} kops_reduction;

/* Who may attach a published buffer, besides root. */
typedef enum kops_access {
	KOPS_OWN_USER = 0, /* processes of the publisher's uid */
	KOPS_GROUP = 1,    /* these, and members of a group */
	KOPS_EVERYBODY = 2,
} kops_access;

typedef enum kops_priority {
	KOPS_NORMAL = 0,
	KOPS_HIGH = 1, /* before this user's other jobs */
	KOPS_LOW = 2,  /* only when nobody has other work for the device */
} kops_priority;

#endif
