/* Prints sizes and offsets of the header's structures. */
#include <portals4.h>
#include <stddef.h>
#include <stdio.h>

int main(void)
{
    printf("%zu %zu %zu ", sizeof(ptl_md_t), sizeof(ptl_le_t), sizeof(ptl_me_t));
    printf("%zu %zu ", offsetof(ptl_me_t, match_id), offsetof(ptl_me_t, match_bits));
    printf("%zu %zu ", sizeof(ptl_event_t), offsetof(ptl_event_t, type));
    printf("%zu %zu\n", sizeof(ptl_ni_limits_t), offsetof(ptl_ni_limits_t, max_msg_size));
    return 0;
}
