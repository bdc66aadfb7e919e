// Command multus asks a podresources socket as multus does on each CNI ADD, with multus's own client: main SOCKET NAMESPACE POD.
// What it hands on is the pod's devices by resource name; that is the reply printed here. One JSON line; see ../README.md.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sort"

	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/kubeletclient"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const module = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "?"
}

func devices(socket, namespace, name string) (map[string][]string, error) {
	client, err := kubeletclient.GetResourceClient(socket)
	if err != nil {
		return nil, err
	}
	resources, err := client.GetPodResourceMap(&core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: namespace, Name: name}})
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for resource, info := range resources {
		sort.Strings(info.DeviceIDs)
		found[resource] = info.DeviceIDs
	}
	return found, nil
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: main SOCKET NAMESPACE POD")
		os.Exit(64)
	}
	out := map[string]any{"client": "multus " + version(), "form": "path", "method": "devices of the pod", "code": 0, "text": "", "reply": ""}
	if found, err := devices(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		out["code"], out["text"] = 2, err.Error()
	} else {
		text, _ := json.Marshal(found)
		out["reply"] = string(text)
	}
	line, _ := json.Marshal(out)
	fmt.Println(string(line))
}
