/* family.h: includes the functions for both types; included once for each family of names. No guard. */
#define LETTER s
#define REAL   float
#define DTYPE  KOPS_F32
#include "functions.h"
#undef LETTER
#undef REAL
#undef DTYPE

#define LETTER d
#define REAL   double
#define DTYPE  KOPS_F64
#include "functions.h"
#undef LETTER
#undef REAL
#undef DTYPE

#undef FORTRAN_BEFORE
#undef FORTRAN_AFTER
#undef CBLAS_BEFORE
#undef CBLAS_AFTER
#undef INT
