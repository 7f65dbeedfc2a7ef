// How calls travel. Not a door: only this room includes it.
#ifndef KN_RANKS_TRANSPORT_H
#define KN_RANKS_TRANSPORT_H

#include "ranks/ranks.h"

// A call on its way to another rank.
typedef struct kn_sending kn_sending;

// Sends the call; it must stay as it is until kn_transport_end. *out NULL: it failed.
knnlm_status kn_transport_begin(kn_call *call, kn_sending **out);
// Looks once whether it was answered: then call->status, out and failure are set. Progress that was told is
// in call->done and total.
knnlm_status kn_transport_poll(kn_sending *sending, bool *answered);
// Asks the rank to give the call up.
void kn_transport_stop(kn_sending *sending);
void kn_transport_end(kn_sending *sending); // NULL is allowed

// Sleeps a little longer every time, up to a fifth of a millisecond: who waits long need not burn the CPU.
void kn_transport_rest(unsigned *waited);

#endif
