#!/bin/sh
# A machine of the testbed: namespaces of mounts and processes in which a container runtime runs.
#
#   machine.sh start FOLDER PROGRAMS CGROUP   the runtime; FOLDER is the machine's disk
#   machine.sh join FOLDER PROGRAM ARGS...    runs a program among the machine's mounts
#
# When the process of `start` ends, in any way, the kernel ends all processes in the namespaces, and removes their
# mounts and networks.
set -eu
step=$1 folder=$2

# Makes the machine's control group in the hierarchy at $1, and makes it the root of what the machine sees of it.
own_group() {
  group=$1
  for part in $(echo "$2" | tr / ' '); do
    parent=$group group=$group/$part
    mkdir -p "$group"
    if [ -f "$parent/cgroup.subtree_control" ]; then
      for controller in $(cat "$parent/cgroup.controllers"); do
        echo "+$controller" >"$parent/cgroup.subtree_control" || true
      done
    else
      # A new group has no CPUs, and the runtime looks for them only up to what it sees as the root.
      for file in cpuset.cpus cpuset.mems; do
        [ ! -f "$group/$file" ] || cat "$parent/$file" >"$group/$file"
      done
    fi
  done
  # One mount in place of the other: the runtime takes the first one that it finds.
  mount --bind "$group" /run/group
  umount "$1"
  mount --move /run/group "$1"
}

case $step in
start)
  rm -f "$folder/images-imported"
  echo $$ >"$folder/pid.new"
  mv "$folder/pid.new" "$folder/pid"
  exec unshare --mount --propagation private --pid --fork --kill-child -- "$0" mounts "$folder" "$3" "$4"
  ;;
mounts)
  # Only this machine sees these folders, at the paths where programs of nodes expect them.
  mount -t tmpfs tmpfs /run
  for name in lib log; do mount --bind "$folder/$name" "/var/$name"; done
  mkdir /run/group
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    own_group /sys/fs/cgroup "$4"
  else
    for hierarchy in /sys/fs/cgroup/*; do
      [ ! -f "$hierarchy/cgroup.procs" ] || own_group "$hierarchy" "$4"
    done
  fi
  # A kubelet joins the mounts as they are here; the runtime sees what it mounts later.
  mount --make-rshared /
  exec unshare --mount --propagation slave -- "$0" runtime "$folder" "$3"
  ;;
runtime)
  mount -t proc proc /proc
  # The network that pods are connected to is not the host's.
  mkdir -p /run/pods
  touch /run/pods/network
  unshare --net=/run/pods/network true
  export PATH="$3:$PATH"
  containerd --config "$folder/containerd.toml" &
  until ctr --namespace k8s.io images import "$3/images.tar"; do sleep 0.1; done
  : >"$folder/images-imported"
  # As the first process of its namespace, the shell also reaps what lost its parent.
  wait
  ;;
join)
  shift 2
  exec nsenter --mount="/proc/$(cat "$folder/pid")/ns/mnt" -- "$@"
  ;;
esac
