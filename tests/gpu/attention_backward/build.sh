#!/bin/bash
# usage: build.sh NAME D CAUSAL BIAS F16 [flags]   compiles cubins/NAME.cubin, prints what ptxas says of the main kernel
#        build.sh all                              every kind that bench.py checks: d{D}_{causal}{bias}{f16}
cd "$(dirname "$0")" && mkdir -p cubins
if [ "$1" = all ]; then
  for d in 128 64; do for c in 0 1; do for k in 00 01 10 11 20; do ./build.sh d${d}_$c$k $d $c ${k:0:1} ${k:1:1}; done; done; done
  exit
fi
n=$1; d=$2; c=$3; b=$4; f=$5; shift 5
log=$(mktemp)
nice ${NVCC:-nvcc} -cubin -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -DD=$d -DCAUSAL=$c -DBIAS=$b -DF16=$f "$@" -Xptxas -v \
  attention_backward.cu -o cubins/$n.cubin > $log 2>&1 || cat $log
echo "$n: $(grep -i 'C75\|error' $log | cut -c1-80 | head -2) $(grep -A3 'entry function .attention_backward. ' $log | tail -2 | tr '\n' ' ' | tr -s ' ')"
rm $log
