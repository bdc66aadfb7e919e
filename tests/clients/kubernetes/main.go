// Command kubernetes calls a podresources socket with Kubernetes' own clients, GetV1Client and GetV1alpha1Client, as NFD,
// resource-topology-exporter and Koordinator do: main SOCKET NAMESPACE POD. One JSON line per call; see ../README.md.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

const (
	deadline    = 10 * time.Second
	maxReply    = 16 << 20
	unknownName = "no-such-pod"
)

type line struct {
	Client string `json:"client"`
	Form   string `json:"form"`
	Method string `json:"method"`
	Code   int    `json:"code"`
	Text   string `json:"text"`
	Reply  string `json:"reply"`
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "k8s.io/kubernetes" {
				return dependency.Version
			}
		}
	}
	return "?"
}

// report prints what one call gave.
func report(client, method string, reply proto.Message, err error) {
	state, _ := status.FromError(err)
	var encoded []byte
	if err == nil {
		encoded, err = proto.Marshal(reply)
		stopOn(err)
	}
	stopOn(json.NewEncoder(os.Stdout).Encode(line{client + " " + version(), "unix", method, int(state.Code()), state.Message(), hex.EncodeToString(encoded)}))
}

func stopOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: main SOCKET NAMESPACE POD")
		os.Exit(64)
	}
	endpoint, namespace, pod := "unix://"+os.Args[1], os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()

	current, connection, err := podresources.GetV1Client(ctx, endpoint, deadline, maxReply)
	stopOn(err)
	defer connection.Close()
	list, err := current.List(ctx, &v1.ListPodResourcesRequest{})
	report("GetV1Client", "List", list, err)
	allocatable, err := current.GetAllocatableResources(ctx, &v1.AllocatableResourcesRequest{})
	report("GetV1Client", "GetAllocatableResources", allocatable, err)
	get, err := current.Get(ctx, &v1.GetPodResourcesRequest{PodNamespace: namespace, PodName: pod})
	report("GetV1Client", "Get", get, err)
	get, err = current.Get(ctx, &v1.GetPodResourcesRequest{PodNamespace: namespace, PodName: unknownName})
	report("GetV1Client", "Get unknown", get, err)

	old, connection, err := podresources.GetV1alpha1Client(ctx, endpoint, deadline, maxReply)
	stopOn(err)
	defer connection.Close()
	oldList, err := old.List(ctx, &v1alpha1.ListPodResourcesRequest{})
	report("GetV1alpha1Client", "v1alpha1 List", oldList, err)
}
