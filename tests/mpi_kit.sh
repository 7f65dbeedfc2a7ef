#!/bin/sh
# What the scripts about many ranks share, on top of shards_kit.sh: how they are launched, and when that cannot be tested.
# shellcheck disable=SC2034,SC2154 # some names are the kit's, some the scripts'
"$knnlm" --version | grep -q '^MPI: Open MPI' || skip "knnlm was built without Open MPI"
command -v mpirun >/dev/null || skip "no mpirun (openmpi-bin)"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_pml=ob1 # what it would choose here after having looked for the networks of clusters
export TMPDIR="$work" # where ranks of one machine meet
# ranks NUMBER: from now on knnlm is run by so many.
ranks() {
    launch="mpirun -q -n $1"
    [ "$1" -gt 0 ] || launch=''
}
ranks 2
# shellcheck disable=SC2086 # words
$launch "$knnlm" --version >out 2>err || skip "mpirun does not run here: $(head -n 1 err)"
