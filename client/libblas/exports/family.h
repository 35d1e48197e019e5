/*
 * family.h: includes the functions for each type; included once for each family of names. No guard.
 *
 * ELEMENT: the type of elements. REAL: that of the parts of complex ones. FACTOR: how alpha and beta come from
 * C; VALUE() gets the number, PASSED() the reverse.
 */
#define LETTER         s
#define ELEMENT        float
#define FACTOR         float
#define VALUE(factor)  (factor)
#define PASSED(number) (number)
#define DTYPE          KOPS_F32
#include "functions.h"

#define LETTER         d
#define ELEMENT        double
#define FACTOR         double
#define VALUE(factor)  (factor)
#define PASSED(number) (number)
#define DTYPE          KOPS_F64
#include "functions.h"

#define LETTER         c
#define ELEMENT        float complex
#define REAL           float
#define FACTOR         const void *
#define VALUE(factor)  (*(const ELEMENT *)(factor))
#define PASSED(number) (&(number))
#define DTYPE          KOPS_C64
#include "functions.h"

#define LETTER         z
#define ELEMENT        double complex
#define REAL           double
#define FACTOR         const void *
#define VALUE(factor)  (*(const ELEMENT *)(factor))
#define PASSED(number) (&(number))
#define DTYPE          KOPS_C128
#include "functions.h"

#undef FORTRAN_BEFORE
#undef FORTRAN_AFTER
#undef CBLAS_BEFORE
#undef CBLAS_AFTER
#undef INT
