#!/bin/sh
# Runs a command as a job of SLURM. If SLURM stops it near the time limit or in the grace time of a preemption (exit code
# 143), the job requeues itself: SLURM requeues no job that ends by itself. A cancelled job is no longer RUNNING. A job whose
# time limit is shorter than the warning before it would never get on: it is stopped in its first seconds.
began=$(date +%s)
child='' stopped=''
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
"$@" &
child=$!
[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null # the signal came before the child existed
while :; do # a signal interrupts `wait`
  wait "$child"
  code=$?
  kill -0 "$child" 2>/dev/null || break
done
element=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
if [ "$code" -eq 143 ] && [ $(($(date +%s) - began)) -ge 5 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 50 ] \
  && [ "$(squeue --noheader --jobs "$element" --format %T)" = RUNNING ]; then
  scontrol requeue "$element"
fi
exit "$code"
