/* status.h: texts of proto/status.def. The codes themselves are enum kops_status in kops_types.h. */
#ifndef KOPS_STATUS_H
#define KOPS_STATUS_H

/* "view exceeds its buffer" for KOPS_E_RANGE; "unknown error" for what is no code. */
const char *status_text(int code);
/* "RANGE" for KOPS_E_RANGE, "OK" for 0, "UNKNOWN" otherwise. */
const char *status_name(int code);

#endif
