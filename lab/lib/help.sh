# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The page that 'lab --help' shows.

lab_help() {
  cat <<EOC
A real fleet on one machine: KVM hosts in namespaces under a real OpenStack.

  lab install [--prometheus]      Debian packages and the Redfish server (once; nothing is started)
  lab start [--hosts N] [--hosts-only] [--prometheus]
                                  start, or join and complete, a lab with N hosts (default 2)
  lab look                        machines, guests, compute services, servers
  lab stop                        end everything and prove that nothing is left
  lab clean                       stop, and remove the cache folder as well
  lab env                         shell lines that point 'openstack' at the lab
  lab describe                    the same for programs, as JSON
  lab logs [MACHINE [SERVICE]]    list or show logs; 'lab logs --save FILE' packs them
  lab exec MACHINE COMMAND...     run a command inside a machine (ctl, hv1, hv2, ...)

Faults, and their repair
  lab kill HOST                   lab boot HOST [--no-wait]           power
  lab cut MACHINE                 lab mend MACHINE                    network
  lab freeze MACHINE PROCESS      lab thaw MACHINE PROCESS            a hanging process
  lab kill-process MACHINE PROC   lab start-process MACHINE PROC      a crashed process
  lab freeze bmc HOST             lab thaw bmc HOST                   a BMC that does not answer
  lab slow-disk HOST MS           lab slow-disk HOST 0                shared storage with pauses
  lab slow-api SERVICE MS         lab slow-api SERVICE 0              ${APIS[*]}
  lab fail-api SERVICE STATUS     lab fail-api SERVICE 0              answers nothing but an error
  lab processes MACHINE                                               names for the above
  lab heal                                                            the end of every fault

Tests
  lab ci [--hosts N] COMMAND...   install, start, run the commands, clean up, show durations
  lab leftovers                   what a stopped lab left (nothing, or exit status 1)

A first live migration
  lab install && lab start && eval "\$(lab env)"
  openstack server create --image tiny --flavor nano --nic none --wait vm1
  openstack server migrate --live-migration --wait vm1
  lab look

Settings, all optional
  COBALTCORE_LAB_DIR    the lab's folder, gone after stop          $LAB_DIR
  COBALTCORE_LAB_CACHE  what is kept between labs                  $LAB_CACHE
  COBALTCORE_LAB_NAME   prefix of bridge and link names            $LAB_NAME
  COBALTCORE_LAB_NET    first three numbers of a free /24          $LAB_NET
  COBALTCORE_LAB_VIRT   kvm, or qemu for software emulation        $LAB_VIRT
EOC
}
